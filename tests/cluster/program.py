"""A program on several machines: ``python program.py WHAT``; the commands that start agents are in ``AGENTS``."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

import numpy as np

from meshrt import Actor, ActorMesh, MeshError, endpoint, proc_mesh, this_proc
from meshrt.engine.command import CommandEngine, ssh

#: For each host: its name, and what the command of its agent begins with.
HOSTS = json.loads(os.environ.get("AGENTS", "{}"))


class Worker(Actor):
    @endpoint
    def place(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()

    @endpoint
    def ask(self, others: ActorMesh[Worker]) -> list[str]:
        """Where others are, by calls from rank to rank."""
        return [host for host, _ in others.place.call().get(30).values()]

    @endpoint
    def length(self, data: bytes) -> int:
        return len(data)

    @endpoint
    def array(self, size: int) -> np.ndarray:
        return np.full(size, 7, np.uint8)

    @endpoint
    def total(self, array: np.ndarray) -> int:
        return int(array.sum(dtype=np.int64))

    @endpoint
    def passed_on(self, others: ActorMesh[Worker], size: int) -> list[int]:
        """What others make of an array of this rank."""
        return others.total.call(np.ones(size, np.uint8)).get(30).values()

    @endpoint
    def say(self, text: str) -> None:
        print(text, flush=True)

    @endpoint
    def fail(self) -> None:
        raise ValueError("as asked")

    @endpoint
    def stop_here(self, value: int) -> int:
        breakpoint()  # @stop
        return value

    @endpoint
    def hang(self) -> None:
        time.sleep(1000)


def calls(workers: ActorMesh[Worker]) -> None:
    """What a program does: calls of the script, calls between ranks, failures."""
    print("places", sorted({host for host, _ in workers.place.call().get(60).values()}))
    first, second = workers.slice(hosts=0), workers.slice(hosts=1)
    print("asked", first.ask.call(second).get(30).values()[0])
    print("lengths", set(workers.length.call(b"x" * 5_000_000).get(60).values()))
    size = 3_000_000
    print("arrays", {int(array.sum(dtype=np.int64)) for array in workers.array.call(size).get(60).values()})
    print("totals", set(workers.total.call(np.ones(size, np.uint8)).get(60).values()))
    print("passed on", first.passed_on.call(second, size).get(60).values())
    print("in a host", second.slice(gpus=0).passed_on.call_one(second.slice(gpus=1), size).get(60))
    print("own", this_proc().spawn("own", Worker).length.call_one(b"abc").get(30))
    workers.say.call("from a rank").get(30)
    try:
        workers.fail.call().get(30)
    except MeshError as error:
        print("failed", "ValueError" in str(error), any(host in str(error) for host in HOSTS))


def wait_for_loss(workers: ActorMesh[Worker]) -> None:
    """A machine is lost while a call waits."""
    workers.place.call().get(60)
    call = workers.hang.call()
    print("hangs", flush=True)
    begun = time.monotonic()
    try:
        call.get(60)
    except MeshError as error:
        print(f"lost after {time.monotonic() - begun:.1f} s: {type(error).__name__}: {error}", flush=True)


def stop(workers: ActorMesh[Worker]) -> None:
    """Ranks stop in the debugger, until someone resumes them."""
    print("values", workers.stop_here.call(7).get(100).values(), flush=True)


def main() -> None:
    what, *names = sys.argv[1:]
    if names:
        engine = ssh(*names, options=json.loads(os.environ["SSH"]))
    else:
        engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    with proc_mesh(hosts=2, gpus=2, engine=engine) as mesh:
        workers = mesh.spawn("worker", Worker)
        {"calls": calls, "loss": wait_for_loss, "stop": stop}[what](workers)


main()

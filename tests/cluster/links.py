"""A program whose ranks on two machines call each other: ``python links.py WHAT``, as `program.py`."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from meshrt import Actor, ActorMesh, MeshError, endpoint, proc_mesh
from meshrt.engine.command import CommandEngine

HOSTS = json.loads(os.environ["AGENTS"])


class Worker(Actor):
    @endpoint
    def host(self) -> str:
        return socket.gethostname()

    @endpoint
    def echo(self, data: bytes) -> bytes:
        return data

    @endpoint
    def ask(self, others: ActorMesh[Worker], size: int) -> str:
        """What becomes of a call to the other machine."""
        begun = time.monotonic()
        try:
            lengths = {len(data) for data in others.echo.call(b"x" * size).get(60).values()}
        except MeshError as error:
            return f"{type(error).__name__} after {time.monotonic() - begun:.0f} s: {error}"
        return f"echoed {lengths}"

    @endpoint
    def rush(self, others: ActorMesh[Worker], count: int, size: int) -> int:
        """Send others more than a connection takes, while they do not read."""
        calls = [others.echo.call(b"x" * size) for _ in range(count)]
        return sum(len(data) for call in calls for data in call.get(100).values())

    @endpoint
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @endpoint
    def talk(self, lines: int) -> None:
        for number in range(lines):
            print(f"line {number} {'x' * 1000}")


def ask(first: ActorMesh[Worker], second: ActorMesh[Worker]) -> None:
    """All ways: from the script, from rank to rank, there and back."""
    print("script", [len(value) for mesh in (first, second) for value in mesh.echo.call(b"x" * 1000).get(60).values()])
    print("first", first.ask.call_one(second, 2_000_000).get(60))
    print("second", second.ask.call_one(first, 2_000_000).get(60))


def again(first: ActorMesh[Worker], second: ActorMesh[Worker]) -> None:
    """The first machine calls the second one whenever it is told to."""
    print("first", first.ask.call_one(second, 1000).get(60), flush=True)
    for line in sys.stdin:
        print(line.strip(), first.ask.call_one(second, 1000).get(100), flush=True)


def pending(first: ActorMesh[Worker], second: ActorMesh[Worker]) -> None:
    """A call is under way when something happens."""
    print("first", first.ask.call_one(second, 1000).get(60), flush=True)
    slow = second.sleep.call_one(5)
    call = first.ask.call_one(second, 1000)
    print("waits", flush=True)
    print("pending", call.get(100))
    slow.get(60)
    print("next", first.ask.call_one(second, 1000).get(100), flush=True)


def rush(first: ActorMesh[Worker], second: ActorMesh[Worker]) -> None:
    """One rank does not read for a while, and its host is called by others meanwhile."""
    slow = second.sleep.call_one(3)
    total = first.rush.call_one(second, 40, 1_000_000)
    begun = time.monotonic()
    print("host", first.host.call_one().get(60) if not total.done() else "", f"{time.monotonic() - begun < 30}")
    slow.get(60)
    print("rushed", total.get(100))


def quiet(first: ActorMesh[Worker], second: ActorMesh[Worker]) -> None:
    """Ranks print while this process is stopped."""
    both = [mesh.talk.call_one(20_000) for mesh in (first, second)]
    print("talk", flush=True)
    sys.stdin.readline()
    for call in both:
        call.get(100)
    print("hosts", first.host.call_one().get(60), second.host.call_one().get(60), flush=True)


def lose(first: ActorMesh[Worker], second: ActorMesh[Worker]) -> None:
    """Its machine is lost while a rank works."""
    second.talk.call_one(3).get(60)
    call = second.sleep.call_one(100)
    print("works", flush=True)
    try:
        call.get(60)
    except MeshError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


def main() -> None:
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    begun = time.monotonic()
    with proc_mesh(hosts=2, gpus=1, engine=engine) as mesh:
        workers = mesh.spawn("worker", Worker)
        print("hosts", [*workers.host.call().get(60).values()], f"after {time.monotonic() - begun:.1f} s", flush=True)
        first, second = workers.slice(hosts=0, gpus=0), workers.slice(hosts=1, gpus=0)
        {"ask": ask, "again": again, "pending": pending, "rush": rush, "quiet": quiet, "lose": lose}[sys.argv[1]](
            first, second
        )


main()

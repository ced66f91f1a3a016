"""Large arrays between machines: ``python arrays.py WHAT``; the commands that start agents are in ``AGENTS``."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from typing import Any

import numpy as np

import meshrt
from meshrt import Actor, ActorMesh, MeshError, ObjectRef, endpoint, proc_mesh, put
from meshrt.engine.command import CommandEngine
from meshrt.transport.process import current_runtime

HOSTS = json.loads(os.environ["AGENTS"])
MIB = 1 << 20
#: Of the array that goes to all.
SIZE = 32 * MIB
LONG = 60


class Keeper(Actor):
    def __init__(self) -> None:
        self.kept: Any = None

    @endpoint
    def place(self) -> str:
        return socket.gethostname()

    @endpoint
    def keep(self, value: Any) -> bool:
        """Returns whether it may be written."""
        self.kept = value
        return bool(value.flags.writeable) if isinstance(value, np.ndarray) else False

    @endpoint
    def total(self) -> int:
        array = self.kept.get() if isinstance(self.kept, ObjectRef) else self.kept
        return int(array.sum(dtype=np.int64))

    @endpoint
    def drop(self) -> None:
        self.kept = None
        gc.collect()

    @endpoint
    def make(self, size: int) -> np.ndarray:
        return np.full(size, 3, np.uint8)

    @endpoint
    def put(self, size: int) -> Any:
        return put(np.full(size, 5, np.uint8), lazy=True)

    @endpoint
    def pass_on(self, others: ActorMesh[Keeper], value: Any) -> list[bool]:
        return others.keep.call(value).get(LONG).values()


def fetched() -> list[int]:
    """MiB that each store has fetched from other machines."""
    return sorted(store["fetched"]["bytes"] // MIB for store in meshrt.memory()["stores"])


def is_free() -> bool:
    gc.collect()
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        document = meshrt.memory(references=True)
        if document["references"] == [] and all(store["committed"] == 0 for store in document["stores"]):
            return True
        time.sleep(0.2)
    print(json.dumps(document["references"], default=str), document["stores"])
    return False


def wait() -> None:
    """Wait for the test."""
    sys.stdin.readline()


def once(keepers: ActorMesh[Keeper]) -> None:
    """An array to all ranks; the test counts what the script's machine sends."""
    keepers.place.call().get(LONG)
    print("ready", flush=True)
    wait()
    keepers.keep.call(np.ones(SIZE, np.uint8)).get(LONG)
    print("sent", flush=True)
    wait()
    print("totals", set(keepers.total.call().get(LONG).values()), "fetched", fetched())
    keepers.keep.broadcast(np.full(SIZE, 2, np.uint8))
    print("totals", set(keepers.total.call().get(LONG).values()), "fetched", fetched())
    keepers.drop.call().get(LONG)
    print("free", is_free())


def references(keepers: ActorMesh[Keeper]) -> None:
    """References of the script and of ranks, and what comes back."""
    first, last = keepers.slice(hosts=0), keepers.slice(hosts=len(HOSTS) - 1)
    reference = put(np.ones(SIZE, np.uint8))
    print("writable", set(keepers.keep.call(reference).get(LONG).values()))
    print("totals", set(keepers.total.call().get(LONG).values()), "fetched", fetched())
    keepers.keep.call(reference).get(LONG)
    print("again", fetched())
    del reference
    lazy = first.slice(gpus=0).put.call_one(MIB).get(LONG)
    print("returned", int(lazy.get().sum()), last.slice(gpus=0).keep.call_one(lazy).get(LONG))
    print("theirs", last.slice(gpus=0).total.call_one().get(LONG))
    print(
        "passed", first.slice(gpus=0).pass_on.call_one(last, lazy).get(LONG), set(last.total.call().get(LONG).values())
    )
    results = keepers.make.call(MIB).get(LONG).values()
    print("results", {int(result.sum(dtype=np.int64)) // MIB for result in results})
    view = np.arange(4 * MIB, dtype=np.int64)[MIB::2]
    keepers.keep.call(view).get(LONG)
    print("views", set(keepers.total.call().get(LONG).values()) == {int(view.sum())})
    del lazy, results, view
    keepers.drop.call().get(LONG)
    print("free", is_free())


def sender_ends(keepers: ActorMesh[Keeper]) -> None:
    """What a rank has sent is held by others after its host has ended."""
    first, others = keepers.slice(hosts=0), keepers.slice(hosts=slice(1, None))
    first.slice(gpus=0).pass_on.call_one(others, np.full(SIZE, 4, np.uint8)).get(LONG)
    print("kept", flush=True)
    wait()
    try:
        first.total.call().get(LONG)
    except MeshError as error:
        print("first", type(error).__name__)
    print("totals", set(others.total.call().get(LONG).values()))


def home_ends(keepers: ActorMesh[Keeper]) -> None:
    """The agent that has the script's store ends: another one is started."""
    array = np.ones(SIZE, np.uint8)
    keepers.keep.call(array).get(LONG)
    home = current_runtime().store.identity().agent_pid
    os.kill(home, signal.SIGKILL)
    print("held", set(keepers.total.call().get(LONG).values()))
    while current_runtime().store.identity().agent_pid == home:
        time.sleep(0.1)
    keepers.keep.call(array).get(LONG)
    print("again", set(keepers.total.call().get(LONG).values()))
    print("another", current_runtime().store.identity().agent_pid not in (0, home))


def lost(keepers: ActorMesh[Keeper]) -> None:
    """A host of the chain is lost while an array goes along it."""
    meshrt.unhandled_fault_hook = lambda _failure: None
    keepers.place.call().get(LONG)
    print("ready", flush=True)
    wait()
    reference, calls = put(np.ones(SIZE, np.uint8)), []
    for host in range(len(HOSTS)):
        calls.append(keepers.slice(hosts=host).keep.call(reference))
        time.sleep(0.5)  # so that they ask for it in this order
    print("sending", flush=True)
    for host, call in enumerate(calls):
        try:
            call.get(LONG)
            print(host, set(keepers.slice(hosts=host).total.call().get(LONG).values()), flush=True)
        except MeshError as error:
            print(host, type(error).__name__, flush=True)


def main() -> None:
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    with proc_mesh(hosts=len(HOSTS), gpus=2, engine=engine) as mesh:
        keepers = mesh.spawn("keeper", Keeper)
        {"once": once, "references": references, "sender_ends": sender_ends, "home_ends": home_ends, "lost": lost}[
            sys.argv[1]
        ](keepers)


main()

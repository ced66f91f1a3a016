"""A program whose ranks print, on two machines: ``python printing.py WHAT``; see the functions below."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from meshrt import Actor, ActorMesh, CommandEngine, MeshError, current_rank, endpoint, proc_mesh

_HOSTS = json.loads(os.environ["AGENTS"])


class Printer(Actor):
    @endpoint
    def say(self, text: str) -> None:
        print(text, flush=True)

    @endpoint
    def go_on(self, seconds: float) -> None:
        """Print numbered lines, each with its time: all machines have the same wall clock."""
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            print(f"line {number} {time.time():.3f}", flush=True)
            number += 1
            time.sleep(0.02)

    @endpoint
    def flood(self, lines: int) -> None:
        for number in range(lines):
            print(f"{number:08d} " + "x" * 190)

    @endpoint
    def memory(self) -> int:
        """The most memory that the agent has taken, KiB."""
        status = Path(f"/proc/{os.getppid()}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    @endpoint
    def fail(self) -> None:
        weights = [1, 2, 3]
        raise ValueError(f"bad batch on rank {current_rank().rank}, {len(weights)} weights")

    @endpoint
    def leave_word(self) -> None:
        """As code of TorchElastic, or a child of the rank, does."""
        message = {"message": "the loader has no data", "extraInfo": {"py_callstack": "at load()", "timestamp": "1"}}
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": message}))
        os._exit(3)

    @endpoint
    def crash(self) -> None:
        os.abort()

    @endpoint
    def allocate(self) -> int:
        hoard: list[bytearray] = []
        while len(hoard) < 20:
            hoard.append(bytearray(400 << 20))  # never near the limit before it is over it
        return len(hoard)


def go_on(printers: ActorMesh[Printer]) -> None:
    """Both hosts print until the second one is lost."""
    try:
        printers.go_on.call(60.0).get(100)
    except MeshError as error:
        print(type(error).__name__, flush=True)


def in_turn(printers: ActorMesh[Printer]) -> None:
    """One line of each host after the other, in two parts; the test says when it goes on."""
    for numbers in ((0, 1), (2, 3, 4, 5)):
        for number in numbers:
            printers.slice(hosts=number % 2, gpus=0).say.call(f"turn {number}").get(60)
            time.sleep(0.8)
        print("said", flush=True)
        input()


def flood(printers: ActorMesh[Printer]) -> None:
    """A rank of the second host prints 200 MB, while its neighbour is called."""
    calls = printers.slice(hosts=1, gpus=0).flood.call(1_000_000)
    longest = 0.0
    while not calls.done():
        begun = time.monotonic()
        printers.slice(hosts=1, gpus=1).say.call("still here").get(60)
        longest = max(longest, time.monotonic() - begun)
        time.sleep(0.05)
    calls.get(100)
    (memory,) = printers.slice(hosts=1, gpus=1).memory.call().get(60).values()
    print(f"flooded: {longest:.3f} s, {memory} KiB", flush=True)


def failures(printers: ActorMesh[Printer]) -> None:
    """Ranks of the second host fail in several ways, each of which leaves a file."""
    second = printers.slice(hosts=1)
    for name, rank in (("fail", 0), ("leave_word", 0), ("crash", 1)):
        try:
            getattr(second.slice(gpus=rank), name).call().get(60)
        except MeshError as error:
            print(name, type(error).__name__, flush=True)


def memory(printers: ActorMesh[Printer]) -> None:
    """A rank of the second host asks for more than its limit."""
    try:
        printers.slice(hosts=1, gpus=0).allocate.call().get(60)
    except MeshError as error:
        print(type(error).__name__, "MemoryError" in str(error), flush=True)


def main() -> None:
    engine = CommandEngine(tuple(_HOSTS), tuple(map(tuple, _HOSTS.values())))
    with proc_mesh(hosts=2, gpus=2, engine=engine) as mesh:
        what = {"go_on": go_on, "in_turn": in_turn, "flood": flood, "failures": failures, "memory": memory}
        what[sys.argv[1]](mesh.spawn("printer", Printer))


main()

"""The script with many ranks: ``python -m bench.hosts.large far|near RANKS QUICK``."""

from __future__ import annotations

import time

from bench.debugger.peers.meshrt import PEER, Walkers
from bench.debugger.scenarios import Person
from bench.hosts.engines import AGENTS, Watched, commands
from bench.hosts.measuring import play
from bench.peers.protocol import run_blocking
from bench.scenarios import Settings, Values, expect
from meshrt import proc_mesh

__all__: list[str] = []


async def measure(ranks: int, quick: bool) -> Values:
    """Start on all hosts, and have a person look on."""
    engine = Watched(commands())
    begin = time.perf_counter()
    walkers = Walkers(proc_mesh(hosts=len(AGENTS), gpus=ranks // len(AGENTS), engine=engine))
    expect(await walkers.ping(), ranks, "answers")
    end = time.perf_counter()
    values = {"many_start": end - begin, "many_behind": end - engine.placed_at}
    person = Person(PEER, "large", walkers.address, Settings(ranks, quick, ""))
    await walkers.play("large", person.sockets)
    values |= {f"many_{name.removeprefix('large_')}": value for name, value in person.measured().items()}
    await walkers.stop()
    return values


async def start(ranks: int) -> Values:
    """Start on this machine."""
    begin = time.perf_counter()
    walkers = Walkers(proc_mesh(gpus=ranks))
    expect(await walkers.ping(), ranks, "answers")
    end = time.perf_counter()
    await walkers.stop()
    return {"near": end - begin}


def far(ranks: int, quick: bool) -> Values:
    """Measure a mesh on all machines."""
    return run_blocking(measure(ranks, quick))


def near(ranks: int, quick: bool) -> Values:
    """Measure as large a mesh on this machine."""
    return run_blocking(start(ranks))


if __name__ == "__main__":
    play({"far": far, "near": near})

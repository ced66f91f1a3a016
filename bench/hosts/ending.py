"""The script whose ranks and hosts end: ``python -m bench.hosts.ending WHAT RANKS QUICK``."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

from bench.hosts.engines import AGENTS, commands
from bench.hosts.measuring import DEATHS, play
from bench.peers.meshrt import Echo
from bench.scenarios import Settings, Values, expect
from meshrt import MeshError, proc_mesh

__all__: list[str] = []


def end(error: str, ranks: int) -> float:
    """Have all ranks wait in a call, and say so. Returns when its error came, by the monotonic clock."""
    mesh = proc_mesh(hosts=len(AGENTS), gpus=ranks // len(AGENTS), engine=commands())
    echo = mesh.spawn("echo", Echo)
    pids = list(echo.pid.call().get().values())
    call = echo.block.call("/dev/null")
    print("waits", pids[-1], flush=True)
    try:
        call.get()
    except MeshError as raised:
        at = time.monotonic()
        expect(type(raised).__name__, error, "the error")
        return at
    raise RuntimeError("the call returned without an error")


def several(name: str, error: str, ranks: int, quick: bool) -> Values:
    """Return the median time to the error; the time of each death is told on standard input."""
    taken = []
    for _ in range(Settings(ranks, quick, "").repeats(DEATHS)):
        at = end(error, ranks)
        taken.append(at - float(sys.stdin.readline()))
    return {name: statistics.median(taken), f"{name}_worst": max(taken)}


def loss(ranks: int, quick: bool) -> Values:
    """Return when the loss was told."""
    return {"hosts_lost": end("HostLost", ranks)}


PARTS: dict[str, Callable[[int, bool], Values]] = {
    "rank": partial(several, "hosts_death", "ProcessDied"),
    "agent": partial(several, "hosts_death_agent", "HostLost"),
    "loss": loss,
}

if __name__ == "__main__":
    play(PARTS)

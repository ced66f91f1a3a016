"""Monarch: a worker on each machine but the first, which serves ``HostMesh``; the client is on the first.

Its workers have no encryption and no proof: any other than ``trust_all_connections`` raises NotImplementedError.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.hosts.protocol import Peer
from bench.scenarios import Settings
from tests.cluster.machines import Machine

__all__ = ["PEER"]

PORT = 22222
PATIENCE = 60.0
PROGRAM = [sys.executable, "-m", "bench.hosts.monarch_program"]


def address(machine: Machine) -> str:
    """Return where the worker of a machine listens."""
    return f"tcp://{machine.address}:{PORT}"


def start_workers(made: list[Machine], ranks: int) -> None:
    """Start a worker on all machines but the first; returns when all listen."""
    for machine in made[1:]:
        machine.start(*PROGRAM, "worker", address(machine))
    deadline = time.monotonic() + PATIENCE
    while not all(f":{PORT:04X} " in Path(f"/proc/{each.pid}/net/tcp").read_text() for each in made[1:]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"a worker of Monarch does not listen after {PATIENCE:.0f} s")
        time.sleep(0.1)


def command(made: list[Machine], what: str, settings: Settings) -> list[str]:
    """Return the command of the client."""
    workers = f"BENCH_WORKERS={' '.join(map(address, made[1:]))}"
    script = [*PROGRAM, what, str(settings.ranks), str(int(settings.quick))]
    return made[0].command("env", "HOME=/tmp/home", "TMPDIR=/tmp", workers, *script)


PEER = Peer(command, start_workers)

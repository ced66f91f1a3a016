"""A Ray cluster on machines made of namespaces: a raylet on each."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.cluster.machines import Machine

__all__ = ["start_raylets"]

SETTINGS = ["HOME=/tmp/home", "TMPDIR=/tmp", "RAY_worker_niceness=0"]
PATIENCE = 120.0


def start_raylets(made: list[Machine], ranks: int) -> None:
    """Start the head on the first machine, which has no CPU for actors; the others have one for each of their ranks.

    Ray gives its workers a low priority; here ranks have that of all other processes, whoever starts them.
    """
    head, *others = made
    wait_for(start(head, 0, "--head", "--port=6379", "--include-dashboard=false"))
    for each in [start(other, ranks // len(others), f"--address={head.address}:6379") for other in others]:
        wait_for(each)


def start(machine: Machine, cpus: int, *joins: str) -> subprocess.Popen[bytes]:
    """Start the command that starts a raylet."""
    few = [f"--num-cpus={cpus}", "--num-gpus=0", "--object-store-memory=500000000", "--disable-usage-stats"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={machine.address}"]
    return machine.start("env", *SETTINGS, *command, *joins, *few, env=os.environ)


def wait_for(started: subprocess.Popen[bytes]) -> None:
    """Wait until a raylet runs."""
    if status := started.wait(PATIENCE):
        raise RuntimeError(f"ray start: exit status {status}")

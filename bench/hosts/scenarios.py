"""The script is on one machine, and four others are its hosts. What it measures there, a fresh process tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench.peers.protocol import Peer
from bench.scenarios import Settings, Values, expect
from tests.cluster.machines import Machine, machines

__all__ = ["SCENARIOS"]

HOSTS = 4
RATE = "1gbit"


async def hosts(peer: Peer, settings: Settings) -> Values:
    """Start, calls and arrays; and, beside them in the same process, what they are compared with."""
    with machines(1 + HOSTS) as made:
        values = told(started("calls", made, settings))
        values |= told(started("arrays", made, settings))
        for machine in made:
            machine.limit(RATE)
        return values | {f"{name}_limited": value for name, value in told(started("arrays", made, settings)).items()}


async def hosts_lost(peer: Peer, settings: Settings) -> Values:
    """The time from a cut cable to the end of the ranks behind it, and to the error of a call."""
    with machines(3) as made:
        program = started("loss", made, settings)
        assert program.stdout is not None
        expect(program.stdout.readline(), "waits\n", "before the cut")
        made[-1].cut()
        begin = time.monotonic()
        wait_until_empty(made[-1])
        gone = time.monotonic() - begin
        return {"hosts_gone": gone, "hosts_lost": told(program)["hosts_lost"] - begin}


def wait_until_empty(machine: Machine) -> None:
    """Wait until no process runs on a machine."""
    while machine.processes():
        time.sleep(0.01)


def started(what: str, made: list[Machine], settings: Settings) -> subprocess.Popen[str]:
    """Start the program in the network of the first machine, with the others as its hosts."""
    inside = ["nsenter", f"--net=/proc/{made[0].pid}/ns/net"]
    agents = {machine.name: machine.command("env", "HOME=/tmp/home") for machine in made[1:]}
    environment = {**os.environ, "BENCH_AGENTS": json.dumps(agents), "BENCH_FLOOR": made[1].address}
    command = [sys.executable, "-m", "bench.hosts.program", what, str(settings.ranks), str(int(settings.quick))]
    return subprocess.Popen(
        [*made[0].switch.inside, *inside, *command], env=environment, stdout=subprocess.PIPE, text=True
    )


def told(program: subprocess.Popen[str]) -> Values:
    """Wait for the end of the program; returns the values that it has printed."""
    out, _ = program.communicate()
    expect(program.returncode, 0, "exit status")
    values: Values = json.loads(out.splitlines()[-1])
    return values


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {
    "hosts": hosts,
    "hosts_lost": hosts_lost,
}

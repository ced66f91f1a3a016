"""The script is on one machine, and others are its hosts. What it measures there, a fresh process tells."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.hosts.measuring import DEATHS
from bench.hosts.protocol import Peer
from bench.hosts.raylets import start_raylets
from bench.processes import available_memory
from bench.scenarios import Settings, Values, expect
from tests.cluster.machines import Machine, machines

__all__ = ["SCENARIOS"]

HOSTS = 4
LARGE_HOSTS = 64
LARGE_GIB = 15
"""Memory that has to be free for many hosts: all ranks load the debugger."""
RATE = "1gbit"
SETTLE = 0.1


async def hosts(peer: Peer, settings: Settings) -> Values:
    """Start, calls and arrays; and, beside them in the same process, what they are compared with."""
    with machines(1 + HOSTS) as made:
        peer.prepare(made, settings.ranks)
        values = told(started(peer, "calls", made, settings))
        values |= told(started(peer, "arrays", made, settings))
        for machine in made:
            machine.limit(RATE)
        limited = told(started(peer, "arrays", made, settings))
        return values | {f"{name}_limited": value for name, value in limited.items()}


async def hosts_ray(peer: Peer, settings: Settings) -> Values:
    """Start on the nodes of a Ray cluster, to which the script's machine belongs as well."""
    with machines(1 + HOSTS) as made:
        start_raylets(made, settings.ranks)
        return told(started(peer, "ray", made, settings))


async def hosts_lost(peer: Peer, settings: Settings) -> Values:
    """The time from a cut cable to the end of the ranks behind it, and to the error of a call."""
    with machines(3) as made, started(peer, "ending.loss", made, settings) as program:
        waiting_rank(program)
        made[-1].cut()
        begin = time.monotonic()
        wait_until_empty(made[-1])
        gone = time.monotonic() - begin
        lost = told(program)["hosts_lost"] - begin
        return {"hosts_gone": gone, "hosts_gone_ratio": gone / lost, "hosts_lost": lost}


async def hosts_death(peer: Peer, settings: Settings) -> Values:
    """The time from the death of a rank, and of an agent, to the error of a call of all ranks."""
    values: Values = {}
    with machines(3) as made:
        for what, victim in (("rank", process_of), ("agent", agent_of)):
            with started(peer, f"ending.{what}", made, settings) as program:
                for _ in range(settings.repeats(DEATHS)):
                    kill_during_call(program, made[-1], victim)
                values |= told(program)
    return values


async def hosts_large(peer: Peer, settings: Settings) -> Values:
    """Many ranks on many machines; as many on this one before; and what is left on the machines afterwards."""
    if (available := available_memory()) < LARGE_GIB:
        raise RuntimeError(f"{LARGE_GIB} GiB of memory are needed, {available:.1f} GiB are available")
    with machines(1 + LARGE_HOSTS) as made:
        near = told(started(peer, "large.near", made, settings))["near"]
        values = told(started(peer, "large.far", made, settings))
        left = sum(len(machine.processes()) for machine in made)
        ratios = {f"{name}_ratio": values[name] / near for name in ("many_start", "many_behind")}
        return {**values, **ratios, "many_left": left}


def waiting_rank(program: subprocess.Popen[str]) -> int:
    """Wait until a call waits for ranks that do not answer; returns the pid of one of them on its machine."""
    assert program.stdout is not None
    word, pid = program.stdout.readline().split()
    expect(word, "waits", "the program says")
    return int(pid)


def kill_during_call(program: subprocess.Popen[str], machine: Machine, victim: Callable[[Machine, int], int]) -> None:
    """Kill a process on a machine on which a rank waits in a call, and tell the program when."""
    assert program.stdin is not None
    pid = victim(machine, waiting_rank(program))
    time.sleep(SETTLE)  # until nothing else is done any more
    killed = time.monotonic()
    machine.kill(pid)
    print(killed, file=program.stdin, flush=True)


def process_of(machine: Machine, pid: int) -> int:
    """Return the pid here of a process that has this pid on a machine."""
    return next(each for each in machine.processes() if status(each)["NSpid"].split()[-1] == str(pid))


def agent_of(machine: Machine, rank: int) -> int:
    """Return the pid here of the agent on a machine: its parent is not there."""
    there = machine.processes()
    return next(each for each in there if int(status(each)["PPid"]) not in there)


def status(pid: int) -> dict[str, str]:
    """Return what the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def wait_until_empty(machine: Machine) -> None:
    """Wait until no process runs on a machine."""
    while machine.processes():
        time.sleep(0.01)


def started(peer: Peer, what: str, made: list[Machine], settings: Settings) -> subprocess.Popen[str]:
    """Start a program of a contestant on the first machine; the others are its hosts."""
    command = peer.command(made, what, settings)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(program: subprocess.Popen[str]) -> Values:
    """Wait for the end of the program; returns the values that it has printed."""
    out, _ = program.communicate()
    expect(program.returncode, 0, "exit status")
    values: Values = json.loads(out.splitlines()[-1])
    return values


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {
    "hosts": hosts,
    "hosts_ray": hosts_ray,
    "hosts_lost": hosts_lost,
    "hosts_death": hosts_death,
    "hosts_large": hosts_large,
}

"""Machines give their processes the same numbers, as containers do: what is meant is a process of one machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.machines import Machine
from tests.cluster.test_launch import LAUNCH, Launch
from tests.support.waiting import wait_until

PROGRAM = Path(__file__).with_name("same_pids.py")
#: Where the numbers of agents and ranks begin, on each machine.
FIRST = 7000
#: The script's own number, where it runs on a machine.
SCRIPT = 6001
#: Runs a command whose process has the number that follows.
_NUMBERED = 'echo $0 > /proc/sys/kernel/ns_last_pid; "$@"'
#: Has processes with all numbers from the one that follows, so many.
_SLEEPERS = (
    "echo $0 > /proc/sys/kernel/ns_last_pid; i=0; while [ $i -lt $1 ]; do sleep 100000 & i=$((i + 1)); done; echo up; "
    "exec sleep 100000"
)


def numbered(number: int, *words: str) -> list[str]:
    """Return the command that runs another one, as the process with this number of its machine."""
    return ["sh", "-c", _NUMBERED, str(number - 1), *words]


def sleepers(launch: Launch, machine: Machine, number: int, count: int) -> set[int]:
    """Start processes that have nothing to do with a program; returns their pids, as the test sees them."""
    before = set(machine.processes())
    started = launch.start(int(machine.name[1:]) - 1, "sh", "-c", _SLEEPERS, str(number - 1), str(count))
    assert started.stdout is not None and started.stdout.readline() == b"up\n"
    made = set(machine.processes()) - before
    assert {number, number + count - 1} <= {inner(pid) for pid in made}
    return made


def inner(pid: int) -> int:
    """Return the number that a process has on its own machine."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])


def said(program: subprocess.Popen[str], word: str) -> str:
    """Read what the program says until a line that begins with a word; returns the rest of that."""
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith(word):
            return line.removeprefix(word).strip()
    raise AssertionError(f"the program has ended: {program.communicate()}")


def tell(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def hang(machines: Sequence[Machine], count: int) -> bool:
    """Whether so many ranks hang, each of which has a child of another session."""
    return sum(line == "sleep 1000" for each in machines for line in each.processes().values()) == count


def goes_on(program: subprocess.Popen[str], cluster: Cluster) -> None:
    """Let the program make its second mesh and stop that; then all ranks of the first one hang."""
    tell(program)
    assert said(program, "again") == str([1_000_000] * 4)
    wait_until(lambda: hang(cluster.machines, 2), 40, "the ranks of the second mesh")
    tell(program)
    said(program, "stopped")
    wait_until(lambda: hang(cluster.machines, 4), 40, "the ranks of the first mesh")


def with_same_numbers(cluster: Cluster) -> tuple[subprocess.Popen[str], list[tuple[str, int, int]]]:
    """Start a program whose ranks have the same numbers on both machines; returns it, and host, pid and agent of each.

    While the second rank is forked, threads of the first one take numbers, too: not each program is one of that kind.
    """
    words = numbered(FIRST, "env", "HOME=/tmp/home")
    agents = {machine.name: machine.command(*words) for machine in cluster.machines}
    for _ in range(10):
        program = cluster.start(program=PROGRAM, agents=agents)
        places = json.loads(said(program, "places"))
        if [pids for _, *pids in places[:2]] == [pids for _, *pids in places[2:]]:
            return program, places
        cluster.clear()
    raise AssertionError(f"ten programs had ranks with different numbers; the last one: {places}")


@pytest.mark.slow
def test_agents_and_ranks_of_two_hosts_have_the_same_numbers(cluster: Cluster) -> None:
    """A host is known by its machine and not by a pid: in placing, calls, stores, and what the tools show."""
    program, places = with_same_numbers(cluster)
    assert [host for host, *_ in places] == ["n1", "n1", "n2", "n2"]
    assert {agent for *_, agent in places} == {FIRST}
    assert said(program, "totals") == str([1_000_000] * 4)
    assert said(program, "passed on") == "True"
    shown = json.loads(cluster.meshrt("top", "--once", "--json"))["ranks"]
    assert {(rank["host"], rank["pid"]) for rank in shown} == {(host, pid) for host, pid, _ in places}
    goes_on(program, cluster)
    cluster.machines[1].end_processes()
    assert said(program, "lost") == "HostLost"
    program.communicate(timeout=60)
    wait_until(cluster.is_empty, 20, "processes of the host that is left")


@pytest.mark.slow
def test_processes_that_have_the_numbers_of_those_of_another_machine_live_on(cluster: Cluster) -> None:
    """The script and the ranks of each machine have the numbers of processes of the other one.

    An agent does not end with a process that has the number of the script, and nothing is killed by a number of
    another machine: not when a mesh is stopped, not when a host is lost, and not at the end.
    """
    first, second = cluster.machines
    launch = Launch(cluster.machines)
    try:
        same = sleepers(launch, second, SCRIPT, 1)
        others = sleepers(launch, first, FIRST, 200) | sleepers(launch, second, SCRIPT + 1, 200)
        known = launch.known(0), launch.known(1)
        words = [*LAUNCH, str(PROGRAM)]
        pipe = subprocess.PIPE
        program: subprocess.Popen[str] = first.start(
            *numbered(SCRIPT, *words),
            env=first.environment(**known[0]),
            text=True,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )  # type: ignore[assignment]
        cluster.programs.append(program)
        launch.start(1, *numbered(FIRST, *words), **known[1])
        places = json.loads(said(program, "places"))
        assert {agent for host, _, agent in places if host == "n2"} == {FIRST}
        numbers = {inner(pid) for pid in others}
        assert {pid for _, pid, _ in places} <= numbers, "the case that is meant"
        for pid in same:
            os.kill(pid, 9)
        goes_on(program, cluster)
        second.cut()
        assert said(program, "lost") == "HostLost"
        program.communicate(timeout=60)
        wait_until(lambda: not hang(cluster.machines, 1) and not hang(cluster.machines, 2), 30, "what ranks have left")
        running = first.processes() | second.processes()
        assert {pid for pid in others if not running.get(pid)} == set(), "one that was killed has no command line"
    finally:
        launch.end()

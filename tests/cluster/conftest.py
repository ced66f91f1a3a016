"""Two machines for the tests of this directory, and programs whose hosts they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster.machines import Machine, machines, why_not
from tests.support.waiting import wait_until

PROGRAM = Path(__file__).with_name("program.py")
_WHY_NOT = why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and _WHY_NOT:
            item.add_marker(pytest.mark.skip(reason=_WHY_NOT))


class Cluster:
    """Machines, and the switch between them, where the scripts run: they see the processes of all machines.

    The agents are started by a command that enters a machine, in the place of ssh.
    """

    def __init__(self, made: list[Machine]) -> None:
        self.machines = made
        self.programs: list[subprocess.Popen[str]] = []
        self.inside = made[0].switch.inside
        #: What begins the command of each agent: words can be added that set variables.
        self.agents = {machine.name: machine.command("env", "HOME=/tmp/home") for machine in made}
        self.environment = {**os.environ, "AGENTS": json.dumps(self.agents), "MESHRT_LOGS": "fold=off"}

    def start(
        self, *words: str, program: Path = PROGRAM, agents: Mapping[str, Sequence[str]] | None = None
    ) -> subprocess.Popen[str]:
        """Start a program of these tests, which can be told lines; ``agents``: other ones than one on each machine."""
        command = [*self.inside, sys.executable, str(program), *words]
        env = self.environment if agents is None else {**self.environment, "AGENTS": json.dumps(agents)}
        pipe = subprocess.PIPE
        self.programs.append(subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe))
        return self.programs[-1]

    def hidden(self, *machines: Machine) -> dict[str, list[str]]:
        """Return the agents; those on these machines listen at loopback: nobody else reaches them, as behind a NAT."""
        names = {machine.name for machine in machines}
        return {
            name: [*command, "MESHRT_BIND=127.0.0.1"] if name in names else command
            for name, command in self.agents.items()
        }

    def clear(self) -> None:
        """End all programs, and wait until nothing of them is left on any machine."""
        for program in self.programs:
            program.kill()
            program.communicate()
        self.programs.clear()
        for machine in self.machines:
            machine.thaw()
            machine.plug()
            machine.restore()
        wait_until(self.is_empty, 20, "processes are left on a machine")

    def run(self, command: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with more in its environment."""
        return subprocess.run(command, env={**self.environment, **more}, capture_output=True, text=True, timeout=100)

    def meshrt(self, *words: str, fails: bool = False) -> str:
        """Run a command of the shell beside it; returns what it prints. ``fails``: it may."""
        command = [*self.inside, sys.executable, "-m", "meshrt", *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert fails or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def is_empty(self) -> bool:
        """Whether nothing of a program is left on any machine."""
        return not any(machine.processes() for machine in self.machines)


@pytest.fixture(scope="module")
def _two_machines() -> Iterator[Cluster]:
    with machines(2) as made:
        yield Cluster(made)


@pytest.fixture
def cluster(_two_machines: Cluster) -> Iterator[Cluster]:
    """Two machines that nothing runs on, before and after."""
    yield _two_machines
    _two_machines.clear()

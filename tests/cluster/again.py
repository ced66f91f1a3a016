"""Tests of one machine, run a second time: the hosts of their meshes are on two machines.

``python -m tests.cluster.again tests/functional tests/faults -n 2``. The machines have a network interface, a clock, a
boot id and a host name of their own. They share pids and files with the tests, which look at both. A test that names an
engine keeps it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from meshrt.engine.command import CommandEngine
from meshrt.mesh import placement
from meshrt.mesh.engine import Placed, Program, Request
from tests.cluster.machines import machines

__all__ = ["TwoMachines", "pytest_configure"]

_AGENTS = "MESHRT_TEST_AGENTS"


@dataclass(frozen=True)
class TwoMachines:
    """The engine of meshes that name none. A mesh whose hosts are not divisible by two has all of them on one."""

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        """Return the agents for a mesh."""
        commands = json.loads(os.environ[_AGENTS])
        engine = CommandEngine(tuple(commands), tuple(map(tuple, commands.values())))
        uneven = request.hosts is not None and request.hosts % 2
        return engine.place(program, replace(request, hosts=1 if uneven else 2), living)


def pytest_configure(config: pytest.Config) -> None:
    """Have meshes of this process placed there. Called by pytest, of which this module is a plug-in then."""
    placement._DEFAULT_ENGINE = (TwoMachines.__module__, TwoMachines.__name__)


def main() -> int:
    """Make the machines and run pytest beside them. Returns its exit status."""
    with machines(2, shares=True) as made:
        agents = {machine.name: machine.command("env") for machine in made}
        tests = [sys.executable, "-m", "pytest", "-p", "tests.cluster.again", *sys.argv[1:]]
        environment = {**os.environ, _AGENTS: json.dumps(agents)}
        return subprocess.run([*made[0].switch.inside, *tests], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

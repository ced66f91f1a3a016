"""Tests of one machine, run with the hosts of their meshes on two machines.

``python -m tests.hosts -n 2 tests/faults/test_stop.py``: the words are those of pytest. Without a path these are all
functional and fault tests. ``--why-not`` prints why such machines cannot be made here, and fails then.

The machines are made of namespaces. Each has a network interface, a clock, a boot id and a host name of its own. They
share pids and files with the tests, which look at both. pytest runs beside them, at the switch that connects them, and
so do the scripts that tests start: they are on a third machine. A test that names an engine keeps it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.machines import machines, why_not
from tests.hosts.startup.sitecustomize import COMMANDS

__all__ = ["main"]

_STARTUP = Path(__file__).with_name("startup")


def main() -> int:
    """Make the machines and run pytest beside them. Returns its exit status."""
    reason = why_not()
    if reason or sys.argv[1:] == ["--why-not"]:
        print(reason)
        return 1 if reason else 0
    words = sys.argv[1:]
    if not any("tests/" in word for word in words):
        words += ["tests/functional", "tests/faults"]
    with machines(2, shares=True) as made:
        commands = {machine.name: machine.command("env") for machine in made}
        path = os.pathsep.join(filter(None, [str(_STARTUP), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, COMMANDS: json.dumps(commands), "PYTHONPATH": path}
        tests = [sys.executable, "-m", "pytest", "-p", "tests.hosts.plugin", *words]
        return subprocess.run([*made[0].switch.inside, *tests], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Programs as a user runs them: a script, ``python -c``, standard input, a terminal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "another_program", "environment", "project", "run_python"]

ROOT = Path(__file__).resolve().parents[2]
#: Settings of whoever runs the tests that would change how the programs behave.
_CHANGES_BEHAVIOUR = frozenset({"COLUMNS", "LINES", "PYTHONUNBUFFERED", "PYTHONINSPECT", "PYTHONSTARTUP"})


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a program: that of this run, with meshrt importable whether installed or not."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    inherited = {name: value for name, value in os.environ.items() if name not in _CHANGES_BEHAVIOUR}
    return {**inherited, "PYTHONPATH": path, "MESHRT_PAGER": "", **more}


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def run_python(
    *arguments: str,
    input: str | None = None,
    cwd: Path | str | None = None,
    seconds: float = 40,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run an interpreter and return what it printed; its output is shown when the test fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=seconds,
        env=env or environment(),
        check=False,
    )
    print(done.stdout)
    print(done.stderr, file=sys.stderr)
    return done


@contextlib.contextmanager
def another_program(
    code: str = "from meshrt import proc_mesh\nproc_mesh(n=1).initialized.get()",
) -> Iterator[subprocess.Popen[str]]:
    """A program with a mesh, which has run ``code``, and ends with a line on its standard input."""
    code += "\nprint('up', flush=True)\ninput()\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        yield other

"""Another user of the machine: what it owns, and what it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

__all__ = ["NOBODY", "give_to_nobody", "needs_root", "run_as_nobody"]

#: Nobody's uid and gid on every Linux.
NOBODY = 65534
#: An interpreter that others can run: that of a virtual environment may lie in a home directory.
_INTERPRETERS = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
_HELLO = "import socket, json, os; print('hello')"

_found: list[str] = []


def needs_root() -> None:
    """Skip the test where no second user can be had."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("another user is made with root's rights and setpriv")


def give_to_nobody(*paths: Path) -> None:
    """Make another user the owner of what has these paths, of links themselves."""
    needs_root()
    for path in paths:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _as_nobody(*command: str, seconds: float = 40) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )


def run_as_nobody(script: str, *arguments: str) -> str:
    """Run a script of the standard library as another user, who holds nothing of this one; returns what it prints."""
    needs_root()
    if not _found:
        _found.extend(path for path in _INTERPRETERS if _as_nobody(path, "-I", "-c", _HELLO).stdout == "hello\n")
    if not _found:
        pytest.skip("another user cannot run an interpreter")
    done = _as_nobody(_found[0], "-I", "-c", textwrap.dedent(script), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout

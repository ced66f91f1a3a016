"""Another user of the machine: what it owns, and what it runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["NOBODY", "give_to_nobody", "needs_root", "run_as_nobody", "running_as_nobody"]

#: Nobody's uid and gid on every Linux.
NOBODY = 65534
#: An interpreter that others can run: that of a virtual environment may lie in a home directory.
_INTERPRETERS = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
#: In a child: `setpriv` has root's rights still when it starts the first one.
_HELLO = """
import subprocess, sys
subprocess.run([sys.executable, "-I", "-c", "import socket, json, os; print('hello')"])
"""

_SECONDS = 40.0
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


def _start_as_nobody(interpreter: str, script: str, *arguments: str) -> subprocess.Popen[str]:
    words = [interpreter, "-I", "-c", textwrap.dedent(script), *arguments]
    return subprocess.Popen(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _says_hello(interpreter: str) -> bool:
    with _start_as_nobody(interpreter, _HELLO) as process:
        return process.communicate(timeout=_SECONDS)[0] == "hello\n"


@contextlib.contextmanager
def running_as_nobody(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script of the standard library as another user, who holds nothing of this one, while the block does."""
    needs_root()
    if not _found:
        _found.extend(filter(_says_hello, _INTERPRETERS))
    if not _found:
        pytest.skip("another user cannot run an interpreter")
    with _start_as_nobody(_found[0], script, *arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def run_as_nobody(script: str, *arguments: str) -> str:
    """As `running_as_nobody`, to the end of the script; returns what it prints."""
    with running_as_nobody(script, *arguments) as process:
        out, err = process.communicate(timeout=_SECONDS)
        assert process.returncode == 0, err
        return out

"""Other Pythons than that of the tests: one that can take processes in, and those whose stacks can be read."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.programs import ROOT, environment

__all__ = ["FIRST", "NOBODY", "base_of", "found_python", "runs_for_others", "why_none"]

#: The first version with ``sys.remote_exec``.
FIRST = (3, 14)
#: Another user than that of the tests, if these run as root.
NOBODY = 65534
_CHECK = (
    "import sys, cloudpickle, msgpack, msgspec, psutil, tabulate, uvloop\n"
    f"sys.exit(sys.version_info < {FIRST} or not hasattr(sys, 'remote_exec'))"
)


@functools.cache
def found_python() -> str:
    """Return a Python that can take processes in, with what meshrt needs; "": there is none."""
    if sys.version_info >= FIRST:
        return sys.executable
    candidates = [str(ROOT / ".venv-3.14" / "bin" / "python"), shutil.which("python3.14") or ""]
    return next((each for each in candidates if Path(each).is_file() and _serves(each)), "")


def _serves(python: str) -> bool:
    done = subprocess.run([python, "-c", _CHECK], capture_output=True, env=environment(), timeout=60)
    return done.returncode == 0


def why_none() -> str:
    """Return why `found_python` has found none."""
    return "no Python 3.14 with meshrt's packages: neither this one, nor .venv-3.14, nor python3.14"


@functools.cache
def base_of(python: str) -> str:
    """Return the interpreter from which a virtual environment was made: it has no packages of that."""
    code = "import sys; print(sys._base_executable)"
    return os.path.realpath(subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip())


@functools.cache
def runs_for_others(python: str) -> bool:
    """Whether this user can start an interpreter as `NOBODY`, for whom it has to be readable."""
    if os.geteuid() != 0 or not python:
        return False
    try:
        env = environment(PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run([python, "-c", "import meshrt.cli"], user=NOBODY, cwd="/", env=env, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0

"""Python processes that meshrt starts beside a program: how each one is started.

A **helper** runs a command of this package (`meshrt dap` for ``proc_mesh(dap=...)``, the screen of a browser). It runs
nothing from the working directory, which may be a directory that other users write to:

* it is started by the path of ``meshrt/__main__.py`` and with ``-P``, so ``sys.path`` has neither the working directory
  nor the directory of that file; ``-I``, ``-E`` and ``-s`` of this interpreter apply to it, too;
* it works in `SAFE_DIRECTORY`, and relative names in its environment have become absolute ones.

It uses this meshrt, wherever that was imported from: ``__main__.py`` loads the package that it is part of.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["SAFE_DIRECTORY", "helper_command", "helper_environment", "interpreter"]

#: The working directory of helpers: only root writes there.
SAFE_DIRECTORY = "/"
_PROGRAM = str(Path(__file__).resolve().parents[1] / "__main__.py")


def interpreter() -> list[str]:
    """Return the command of an interpreter with the options of this one (``-I``, ``-P``, ``-W``, ``-X``, ...)."""
    return [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]


def helper_command(*words: str) -> list[str]:
    """Return the command of a helper that runs ``meshrt WORDS``; warnings are not errors in it."""
    flags = sys.flags
    given = (("-I", flags.isolated), ("-E", flags.ignore_environment), ("-s", flags.no_user_site))
    return [sys.executable, *(option for option, is_set in given if is_set), "-P", _PROGRAM, *words]


def helper_environment(runtime_directory: Path | str) -> dict[str, str]:
    """Return the environment of a helper that works in `SAFE_DIRECTORY`.

    Args:
        runtime_directory: That of the program that the helper is for.
    """
    environment = {**os.environ, "MESHRT_RUNTIME_DIR": str(Path(runtime_directory).absolute().parent)}
    runs = environment.get("MESHRT_RUNS")
    if runs:
        environment["MESHRT_RUNS"] = os.path.abspath(runs)
    if "PYTHONPATH" in environment:  # an empty entry there is the working directory
        entries = filter(None, environment["PYTHONPATH"].split(os.pathsep))
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, entries))
    return environment

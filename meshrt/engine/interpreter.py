"""Whether an interpreter can run ranks of a script. It imports nothing of meshrt: older ones of Python read it."""

import importlib.util
import os
import socket
import sys
from pathlib import Path

__all__ = ["AGENT_MODULE", "NO_FILE", "SCRIPT_PYTHON", "unfit", "why_ended"]

#: Environment of an agent that a command starts: the version of the script's Python.
SCRIPT_PYTHON = "MESHRT_SCRIPT_PYTHON"
#: The program of an agent, where it is installed.
AGENT_MODULE = "meshrt.engine.agent_main"
#: What an interpreter says of a file that does not exist.
NO_FILE = "can't open file"
#: The exit status of a program that does not exist.
_NO_PROGRAM = 127

#: What an agent and its ranks import that does not come with Python.
_PACKAGES = ("cloudpickle", "msgpack", "msgspec", "psutil", "uvloop")


def unfit() -> str:
    """Return why this interpreter cannot run ranks of the script; "" if it can."""
    version = os.environ.pop(SCRIPT_PYTHON, "")
    own = ".".join(map(str, sys.version_info[:3]))
    python = f"host {socket.gethostname()} runs Python {own} ({sys.executable})"
    if version and own.split(".")[:2] != version.split(".")[:2]:
        return f"{python}, the script Python {version}; expected the same minor version"
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    return f"{python}, which has no package {', '.join(missing)}; meshrt needs it" if missing else ""


def why_ended(host: str, python: str, program: Path, status: int, said: str) -> str:
    """Return why an agent has not joined.

    Args:
        python: Its interpreter.
        program: The file that was run.
        status: How its command has ended.
        said: What that has written to its standard error.
    """
    if f"No module named '{AGENT_MODULE.partition('.')[0]}'" in said:
        return f"host {host} has no meshrt: not at {program.parents[1]}, and not installed for {python}"
    if status == _NO_PROGRAM and python in said:
        return f"host {host} has no interpreter {python}; python= names another one"
    if said.startswith(f"host {host} "):  # of the agent itself
        return said
    return f"the agent of host {host} has ended before it joined, with exit status {status}" + (said and f": {said}")

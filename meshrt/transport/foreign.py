"""Processes that meshrt has not started: which of them are Python, and what it takes to look into one. By ``/proc``."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.transport.kernel import kernel_state

__all__ = [
    "check_processes",
    "command_of",
    "may_look",
    "owner_of",
    "python_of",
    "refuses_scripts",
    "user_name",
    "words_of",
]

#: The files that a process of CPython has mapped: the interpreter, or its shared library.
_PYTHON = re.compile(r"/(?:lib)?python(?P<version>3\.\d+)[a-z]*(?:\.so(?:\.[\d.]+)?)?(?: \(deleted\))?")
#: The option of Python, as it is spelled on a command line.
_OFF = "disable-remote-debug"
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def check_processes(pids: Sequence[int]) -> None:
    """Raise UsageError: a process is not there, or is named twice. Raises OSError: that cannot be read."""
    for pid in pids:
        if pids.count(pid) > 1:
            raise UsageError(f"PID {pid} is given twice")
        state = kernel_state(pid)
        if not state:
            raise UsageError(f"PID {pid}: there is no such process")
        if state in ("Z", "X"):
            raise UsageError(f"PID {pid} has ended, but its parent has not reaped it yet")


def python_of(pid: int) -> str:
    """Return the version of CPython that a process runs, ``"3.13"``; "": it is not seen to be one, or has ended.

    An interpreter that is linked into another program statically is not seen. Raises OSError: other than an end, as
    PermissionError.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    found = (_PYTHON.search("/" + line.rpartition("/")[2]) for line in maps.splitlines() if "python3" in line)
    return next((match["version"] for match in found if match is not None), "")


def owner_of(pid: int) -> int | None:
    """Return the effective user id of a process; None: it has ended."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        if match := re.search(r"^Uid:\s+\d+\s+(\d+)", status, re.MULTILINE):
            return int(match[1])
    return None


def user_name(uid: int) -> str:
    """Return the name of a user, or the number in words."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"number {uid}"


def words_of(pid: int) -> list[str]:
    """Return the command of a process, word by word; []: it has ended, or has none."""
    with contextlib.suppress(OSError):
        words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).rstrip("\0").split("\0")
        return words if words != [""] else []
    return []


def refuses_scripts(pid: int) -> bool:
    """Whether a process of Python was told to run no scripts that come from other processes (PEP 768)."""
    words = words_of(pid)
    if f"-X{_OFF}" in words or ("-X", _OFF) in pairwise(words):
        return True
    if {"-E", "-I"} & {*words}:  # it does not read variables
        return False
    with contextlib.suppress(OSError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return any(each.startswith(b"PYTHON_DISABLE_REMOTE_DEBUG=") and each[-1:] != b"=" for each in variables)
    return False


def command_of(pid: int) -> str:
    """Return the command of a process in one line; "": it has ended, or has none."""
    return " ".join(shlex.join(words_of(pid)).split())


def may_look(pid: int) -> str:
    """Return what it takes that this process may look into another one, which the kernel has refused (ptrace(2))."""
    owner = owner_of(pid)
    if owner is not None and owner != os.geteuid():
        return f"PID {pid} belongs to the user {user_name(owner)}: access requires root or CAP_SYS_PTRACE"
    scope = _scope()
    if scope == 3:
        return f"no process has access to PID {pid}: kernel.yama.ptrace_scope is 3 until the machine is restarted"
    if scope:
        how = "; or run, as root, sysctl kernel.yama.ptrace_scope=0" if scope == 1 else ""
        return f"access to PID {pid} requires CAP_SYS_PTRACE, as kernel.yama.ptrace_scope is {scope}{how}"
    return (
        f"access to PID {pid} requires CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE): the process has changed "
        "its user, has more capabilities, or is in a sandbox"
    )


def _scope() -> int:
    try:
        return int(_YAMA.read_text())
    except (OSError, ValueError):  # this kernel has no Yama
        return 0

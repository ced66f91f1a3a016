"""The two directories of a program.

* The **runtime directory** holds sockets, the tools' token and ``program.json``. It lives under ``$XDG_RUNTIME_DIR`` or
  the system's temporary directory, is private (0700, verified), and goes when the program ends.
* The **run directory** holds what a person reads afterwards: the output of every rank. It stays; the oldest go.

A socket's path may have 107 bytes, so the runtime directory is kept short.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from meshrt.errors import UsageError

__all__ = [
    "alive",
    "create_run",
    "create_runtime",
    "process_start",
    "remove_tree",
    "runs_base",
    "runtime_base",
    "verify_private",
    "write_atomic",
]

#: Run directories of ended programs that are kept.
KEPT_RUNS = 30
#: Seconds after which a program that has not said who it is never will.
_UNPUBLISHED = 60.0


def runtime_base() -> Path:
    """Return the directory in which every program of this user has its runtime directory (it may not exist yet)."""
    base = os.environ.get("MESHRT_RUNTIME_DIR")
    if base:
        return Path(base)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "meshrt"
    return Path(tempfile.gettempdir()) / f"meshrt-{os.geteuid()}"


def runs_base() -> Path:
    """Return the directory of the run directories: ``$MESHRT_RUNS``, or below ``$XDG_STATE_HOME``."""
    base = os.environ.get("MESHRT_RUNS")
    if base:
        return Path(base)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "meshrt" / "runs"


def verify_private(path: Path) -> None:
    """Raise UsageError unless ``path`` is a real directory of this user that nobody else can enter."""
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise UsageError(f"{path} is not a directory (or a link to one); remove it, or set MESHRT_RUNTIME_DIR")
    if facts.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to uid {facts.st_uid}, not to you; set MESHRT_RUNTIME_DIR to another place")
    if facts.st_mode & 0o077:
        raise UsageError(f"{path} is open to other users (mode {stat.S_IMODE(facts.st_mode):o}); chmod 700 it")


def create_runtime(run_id: str) -> Path:
    """Make the private runtime directory of this program, and remove those that dead programs left."""
    base = runtime_base()
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700, parents=True)
    verify_private(base)
    _reclaim(base)
    path = base / run_id
    path.mkdir(mode=0o700)
    if len(os.fsencode(path)) > 70:
        path.rmdir()
        raise UsageError(f"{base} is too long for socket paths (70 bytes); set MESHRT_RUNTIME_DIR to a shorter one")
    return path


def _reclaim(base: Path) -> None:
    for entry in base.iterdir():
        with contextlib.suppress(OSError, ValueError, KeyError):
            if _abandoned(entry):
                remove_tree(entry)


def _abandoned(entry: Path) -> bool:
    try:
        facts = json.loads((entry / "program.json").read_text())
    except FileNotFoundError:
        # Its program is about to write it, or died before it could.
        return time.clock_gettime(time.CLOCK_REALTIME) - entry.stat().st_mtime > _UNPUBLISHED
    return not alive(facts)


def alive(facts: dict[str, Any]) -> bool:
    """Whether the process of a ``program.json`` still runs (the same one: pid and start time)."""
    return process_start(int(facts["pid"])) == str(facts["start"])


def process_start(pid: int) -> str:
    """Return the kernel's start time of a process in clock ticks since boot, "" when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def create_run(run_id: str) -> Path:
    """Make the directory for what outlives the program; in the temporary directory when home is read-only."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{run_id}"
    base = runs_base()
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        _prune(base)
        path = base / name
        path.mkdir(mode=0o700)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix=f"meshrt-run-{name}-"))
    return path


def _prune(base: Path) -> None:
    runs = sorted(entry for entry in base.iterdir() if entry.is_dir())
    for entry in runs[: max(0, len(runs) - KEPT_RUNS)]:
        # A running program holds a lock of its own by being young: thirty others were started after it.
        remove_tree(entry)


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; what is gone already is no error."""
    shutil.rmtree(path, ignore_errors=True)


def write_atomic(path: Path, text: str) -> None:
    """Write a small file so that a reader sees all of it or nothing; mode 0600."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)

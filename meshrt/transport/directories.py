"""The two directories of a program.

* The **runtime directory** holds sockets, the tools' token and ``program.json``. It lives in a place that is private
  (`meshrt.transport.places`), and goes when the program ends.
* The **run directory** holds what a user reads afterwards: the output of every rank. It stays; the oldest are removed.

A socket's path may have 107 bytes, so the runtime directory is kept short.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.transport import dirlock, places

__all__ = [
    "ERROR_FILE",
    "create_run",
    "create_runtime",
    "discard",
    "ended_run",
    "error_path",
    "failed",
    "in_use",
    "is_empty",
    "log_path",
    "remove_tree",
    "repair",
    "runs",
    "runtime_of",
]

#: The environment variable that names the file in which a process is to say why it fails, for its parent. It
#: comes from TorchElastic, and is handed down to all children.
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
#: Run directories of ended programs that are kept.
KEPT_RUNS = 30
#: ... and of those before them, so many that have left a failure.
KEPT_FAILED = 10
_RUNTIME_NAME = re.compile(r"p-[0-9a-f]{8}")
_RUN_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-([0-9a-f]{8})")


def _ignore(_text: str) -> None:
    """Say nothing."""


def runtime_of(run_id: str) -> list[Path]:
    """Return the runtime directories of a program that are there: one, or none."""
    found = [base / f"p-{run_id}" for base in places.runtime_bases()]
    return [path for path in found if path.is_dir()]


def runs(run: str = "") -> list[Path]:
    """Return the run directories that are there, of the program ``run`` or ("") of all, the oldest first."""
    base = places.runs_base()
    if base is None:
        return []
    try:
        return sorted(entry for entry in base.iterdir() if entry.name.endswith(run) and _is_ours(entry))
    except OSError:  # no program has run yet
        return []


def _is_ours(path: Path) -> bool:
    """Whether it is a directory of this user, and no link to one."""
    facts = path.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()


def failed(run: Path) -> bool:
    """Whether the program of a run directory has left a failure."""
    return any(run.glob("failure-*.json"))


def ended_run(wanted: str) -> Path | None:
    """Return the run directory of a program that has ended; None: there is none.

    Args:
        wanted: Its id, at least four characters with which no other id begins, or the directory.
    """
    if "/" in wanted:
        path = Path(wanted)
        found = path if path.is_dir() and _RUN_NAME.search(path.resolve().name) else None
    else:
        ids = {path: path.name.rpartition("-")[2] for path in runs()}
        begun = [path for path, run_id in ids.items() if len(wanted) >= 4 and run_id.startswith(wanted)]
        exact = [path for path, run_id in ids.items() if wanted in (path.name, run_id)]
        found = next(iter(exact or (begun if len(begun) == 1 else [])), None)
    return None if found is None or in_use(found) else found


def create_runtime(run_id: str, tell: Callable[[str], object] = _ignore) -> Path:
    """Make the private runtime directory of this program, and remove those of programs that have ended.

    Args:
        tell: Given a line if the directory is not where it usually is.
    Raises:
        UsageError, OSError: There is no place for it.
    """
    base = places.make_runtime_base(tell)
    for entry in _left_behind(base, _RUNTIME_NAME):
        remove_tree(entry)
    path = base / f"p-{run_id}"
    if len(os.fsencode(path)) > 70:
        raise UsageError(f"{base} is too long for socket paths (70 bytes); set MESHRT_RUNTIME_DIR to a shorter one")
    path.mkdir(mode=0o700)
    dirlock.lock(path)
    return path


def create_run(run_id: str, tell: Callable[[str], object] = _ignore, limit: int = 1 << 60) -> Path:
    """Make the directory for files that outlive the program; in the temporary directory when home is read-only.

    Args:
        tell: Given a line if ``MESHRT_RUNS`` names a directory that is not safe, if the directory is not where commands
            look for it, and if what is kept is too large.
        limit: Bytes that programs which have ended may have left.
    Raises:
        OSError: There is no place for it.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{run_id}"
    path, problem = None, "no directory for run directories is safe"
    try:
        base = places.make_runs_base(tell)
        path = None if base is None else _made_in(base, name, tell, limit)
    except OSError as error:
        problem = f"a run directory in {places.runs_base()} cannot be made: {error.strerror}"
    if path is None:
        path = places.make_temporary(f"meshrt-run-{name}-")
        if path is None:
            raise UsageError("there is no directory for the output of ranks; set MESHRT_RUNS to one of your own")
        tell(f"{problem}; {path} is used instead; commands cannot find this program by its id after its end")
    dirlock.lock(path)
    return path


def command_name(run_id: str, run: Path) -> str:
    """Return what names a program in commands, also after its end: its id, or the run directory if they cannot find it.

    Args:
        run: Its run directory.
    """
    return run_id if run.parent == places.runs_base() else str(run)


def _made_in(base: Path, name: str, tell: Callable[[str], object], limit: int) -> Path:
    left = sorted(_left_behind(base, _RUN_NAME))
    older = left[:-KEPT_RUNS]
    # A failure is not to be pushed out by the programs that went well since.
    kept = [entry for entry in older if failed(entry)][-KEPT_FAILED:]
    for entry in older:
        if entry not in kept:
            remove_tree(entry)
    _keep_within(limit, [entry for entry in left if entry in kept or entry not in older], tell)
    path = base / name
    path.mkdir(mode=0o700)
    return path


def _keep_within(limit: int, runs: list[Path], tell: Callable[[str], object]) -> None:
    """Remove the oldest directories until the others are small enough. The latest stays, however large it is."""
    sizes = {run: _size_of(run) for run in runs}
    used, removed = sum(sizes.values()), []
    for run in runs[:-1]:
        if used <= limit:
            break
        remove_tree(run)
        used -= sizes[run]
        removed.append(run.name)
    if removed:
        tell(
            f"the directories of ended programs had more than {limit} bytes (MESHRT_RUNS_LIMIT): "
            f"{len(removed)} of them removed, {removed[0]} first"
        )


def _size_of(run: Path) -> int:
    """Return the bytes of its files; there are no directories in it."""
    size = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(run):
            with contextlib.suppress(OSError):
                size += entry.stat(follow_symlinks=False).st_size
    return size


def repair(path: Path) -> bool:
    """Make a directory of this program and its lock again if they were removed; returns whether they were.

    Raises UsageError, OSError: its place is not safe any more.
    """
    if dirlock.owns(path):
        return False
    places.make_guarded(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    dirlock.lock(path)
    return True


def in_use(path: Path) -> bool:
    """Whether a living program uses this directory, in whichever pid namespace it runs."""
    if dirlock.is_locked(path):
        return True
    # Where the lock of a run directory has been removed, the runtime directory tells of its program.
    run = _RUN_NAME.search(path.name)
    return run is not None and any(map(dirlock.is_locked, runtime_of(run[1])))


def _left_behind(base: Path, name: re.Pattern[str]) -> list[Path]:
    """The directories of programs that have ended. All else in ``base`` is left alone."""
    found = []
    for entry in base.iterdir():
        with contextlib.suppress(OSError):
            if name.fullmatch(entry.name) and _is_ours(entry) and not in_use(entry):
                found.append(entry)
    return found


def error_path(run_directory: Path | str, mesh_name: str, mesh_id: str, rank: int) -> Path:
    """Return the file in which children of a rank, and code of TorchElastic in it, say why they fail."""
    return Path(run_directory) / f"{mesh_name}-{mesh_id}.{rank}.error.json"


def log_path(run_directory: Path | str, mesh_name: str, mesh_id: str, rank: int) -> Path:
    """Return the file that keeps what a rank prints."""
    return Path(run_directory) / f"{mesh_name}-{mesh_id}.{rank}.log"


def is_empty(path: Path) -> bool:
    """Whether there is nothing but the lock in a directory (or it has been removed)."""
    with contextlib.suppress(OSError):
        return all(entry.name == dirlock.LOCK for entry in path.iterdir())
    return False


def discard(path: Path) -> None:
    """Remove a directory of this program, and give up its lock."""
    remove_tree(path)
    dirlock.unlock(path)


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; files that were removed already are not an error."""
    shutil.rmtree(path, ignore_errors=True)

"""The two directories of a program.

* The **runtime directory** holds sockets, the tools' token and ``program.json``. It lives under ``$XDG_RUNTIME_DIR`` or
  the system's temporary directory, is private (0700, verified), and goes when the program ends.
* The **run directory** holds what a person reads afterwards: the output of every rank. It stays; the oldest go.

A socket's path may have 107 bytes, so the runtime directory is kept short.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from meshrt.errors import UsageError

__all__ = [
    "ERROR_FILE",
    "create_run",
    "create_runtime",
    "ended_run",
    "error_path",
    "failed",
    "in_use",
    "is_empty",
    "log_path",
    "make_runtime_base",
    "release",
    "remove_tree",
    "runs",
    "runs_base",
    "runtime_base",
    "runtime_of",
    "verify_private",
    "write_atomic",
]

#: The environment variable that names the file in which a process is to say why it fails, for whoever started it. It
#: comes from TorchElastic, and is handed down to all children.
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
#: Run directories of ended programs that are kept.
KEPT_RUNS = 30
#: ... and of those before them, so many that have left a failure.
KEPT_FAILED = 10
#: Seconds after which a program that has not taken its directory never will.
_UNTAKEN = 60.0
_RUNTIME_NAME = re.compile(r"p-[0-9a-f]{8}")
_RUN_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")
#: Locked by its program as long as that lives.
_LOCK = ".lock"
_held: dict[Path, int] = {}


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


def runtime_of(run_id: str) -> Path:
    """Return the runtime directory of a program."""
    return runtime_base() / f"p-{run_id}"


def runs(run: str = "") -> list[Path]:
    """Return the run directories that are there, of the program ``run`` or ("") of all, the oldest first."""
    try:
        return sorted(entry for entry in runs_base().iterdir() if entry.name.endswith(run) and entry.is_dir())
    except OSError:  # no program has run yet
        return []


def failed(run: Path) -> bool:
    """Whether the program of a run directory has left a failure."""
    return any(run.glob("failure-*.json"))


def ended_run(wanted: str) -> Path | None:
    """Return the run directory of a program that has ended, named by its id, or by the directory; None: no such."""
    if "/" in wanted:
        path = Path(wanted)
        found = path if path.is_dir() and _RUN_NAME.search(path.resolve().name) else None
    else:
        found = next((path for path in runs() if wanted in (path.name, path.name.rpartition("-")[2])), None)
    return None if found is None or in_use(found) else found


def verify_private(path: Path) -> None:
    """Raise UsageError unless ``path`` is a real directory of this user that nobody else can enter."""
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise UsageError(f"{path} is not a directory (or a link to one); remove it, or set MESHRT_RUNTIME_DIR")
    if facts.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to uid {facts.st_uid}, not to you; set MESHRT_RUNTIME_DIR to another place")
    if facts.st_mode & 0o077:
        raise UsageError(f"{path} is open to other users (mode {stat.S_IMODE(facts.st_mode):o}); chmod 700 it")


def make_runtime_base() -> Path:
    """Return `runtime_base`, which is there then, and this user's alone. Raises UsageError, OSError."""
    base = runtime_base()
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700, parents=True)
    verify_private(base)
    return base


def create_runtime(run_id: str) -> Path:
    """Make the private runtime directory of this program, and remove those that dead programs left."""
    base = make_runtime_base()
    for entry in _left_behind(base, _RUNTIME_NAME):
        remove_tree(entry)
    path = runtime_of(run_id)
    if len(os.fsencode(path)) > 70:
        raise UsageError(f"{base} is too long for socket paths (70 bytes); set MESHRT_RUNTIME_DIR to a shorter one")
    path.mkdir(mode=0o700)
    _hold(path)
    return path


def create_run(run_id: str) -> Path:
    """Make the directory for what outlives the program; in the temporary directory when home is read-only."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{run_id}"
    try:
        base = runs_base()
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        older = sorted(_left_behind(base, _RUN_NAME))[:-KEPT_RUNS]
        # A failure is not to be pushed out by the programs that went well since.
        kept = [entry for entry in older if failed(entry)][-KEPT_FAILED:]
        for entry in older:
            if entry not in kept:
                remove_tree(entry)
        path = base / name
        path.mkdir(mode=0o700)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory at all
        path = Path(tempfile.mkdtemp(prefix=f"meshrt-run-{name}-"))
    _hold(path)
    return path


def release(path: Path) -> None:
    """Say that this program does not use a directory of its own any more."""
    lock = _held.pop(path, None)
    if lock is not None:
        os.close(lock)


def in_use(path: Path) -> bool:
    """Whether a living program holds this directory, in whichever pid namespace it runs."""
    try:
        lock = os.open(path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # Its program is about to take it, or died before it could.
        return time.clock_gettime(time.CLOCK_REALTIME) - path.stat().st_mtime < _UNTAKEN
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _left_behind(base: Path, name: re.Pattern[str]) -> list[Path]:
    """The directories of programs that have ended. Whatever else stands in ``base`` is somebody's own."""
    found = []
    for entry in base.iterdir():
        with contextlib.suppress(OSError):
            facts = entry.lstat()
            ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and name.fullmatch(entry.name)
            if ours and not in_use(entry):
                found.append(entry)
    return found


def _hold(path: Path) -> None:
    # Locked before it has its name: another program that starts now would take an unlocked one for that of a dead one.
    unnamed = path / f"{_LOCK}.new"
    lock = os.open(unnamed, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(path / _LOCK)
    _held[path] = lock


def _let_go_in_child() -> None:
    # A fork shares the lock, and must not keep the directories of a program that has ended.
    for path in tuple(_held):
        release(path)


os.register_at_fork(after_in_child=_let_go_in_child)


def error_path(run_directory: Path | str, mesh_name: str, mesh_id: str, rank: int) -> Path:
    """Return the file in which children of a rank, and code of TorchElastic in it, say why they fail."""
    return Path(run_directory) / f"{mesh_name}-{mesh_id}.{rank}.error.json"


def log_path(run_directory: Path | str, mesh_name: str, mesh_id: str, rank: int) -> Path:
    """Return the file that keeps what a rank prints."""
    return Path(run_directory) / f"{mesh_name}-{mesh_id}.{rank}.log"


def is_empty(path: Path) -> bool:
    """Whether nothing but the lock stands in a directory (or somebody has removed it)."""
    with contextlib.suppress(OSError):
        return all(entry.name == _LOCK for entry in path.iterdir())
    return False


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; what is gone already is no error."""
    shutil.rmtree(path, ignore_errors=True)


def write_atomic(path: Path, text: str | Iterable[str], *, private: bool = False) -> None:
    """Write a file so that a reader sees all of it or nothing. A new one has mode 0600, another one keeps its mode.

    A link stays one, and what it points to is written. What is no file, such as a pipe or a device, cannot be replaced:
    it is written to, as ``/dev/stdout`` is.

    Args:
        text: All of it, or its pieces in order.
        private: A file that is there already loses what others may do with it.
    Raises:
        OSError: It cannot be written, and nothing is left. The error names ``path``, also where the disk is full.
    """
    temporary = None
    try:
        facts = _facts_of(path)
        descriptor = None if facts is None else _opened_as_it_is(path, facts)
        if descriptor is None:
            target = path.resolve()  # the file may be kept elsewhere
            mode = 0o600 if facts is None else stat.S_IMODE(facts.st_mode) & (0o700 if private else 0o7777)
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            os.fchmod(descriptor, mode)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
        if temporary is not None:
            temporary.replace(target)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(path), str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _facts_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _opened_as_it_is(path: Path, facts: os.stat_result) -> int | None:
    """Return a descriptor of what is to be written to where it is; None: of a file that can be replaced."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed
            if os.path.samestat(facts, os.fstat(descriptor)):
                return os.dup(descriptor)  # opened anew it would begin at its start, and a socket cannot be
    if stat.S_ISREG(facts.st_mode):
        return None
    if stat.S_ISSOCK(facts.st_mode):
        raise OSError(errno.ENXIO, "it is a socket", str(path))
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

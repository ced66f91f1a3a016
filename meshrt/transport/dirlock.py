"""The lock of a directory: which program uses it, so that no other removes it while that program runs.

* A program has a lock of the kernel on the file ``.lock`` and on the directory itself. The second one is left when
  a cleaner of temporary files has removed the first, and keeps systemd-tmpfiles from looking into it at all.
* ``program.json`` names the process by its pid, its start and the boot, as pids are used again. So it is found, too,
  where its program has closed descriptors that are not its own.
* Programs set the times of their files again and again, for cleaners that look at nothing else.
* ``.lock`` names the process, too. Where a directory is shared with other machines, whose locks may not be seen here, a
  program of another one is known to live by these times.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from meshrt.transport.kernel import boot_id, kernel_state, pid_namespace, start_of
from meshrt.transport.writing import open_private

__all__ = [
    "LOCK",
    "PROGRAM",
    "end",
    "facts_of",
    "identity",
    "is_elsewhere",
    "is_locked",
    "lives",
    "lock",
    "owns",
    "refresh",
    "unlock",
]

#: Locked by its program as long as that lives.
LOCK = ".lock"
PROGRAM = "program.json"
#: Seconds after which a program that has not taken its directory never will.
_UNTAKEN = 60.0
#: Seconds without new times after which a process that cannot be looked for has ended.
_SILENT = 86400.0
#: ... for which a program of another machine does not set the times of its directory while it lives (every 300 s), and
#: by which clocks may differ.
_ELSEWHERE = 900.0
_READ_MAX = 8 << 20
#: Errors that do not say whether a file is there: it cannot be looked at.
_UNKNOWN = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_locks: dict[Path, _Lock] = {}


class _Open(msgspec.Struct, frozen=True):
    """A descriptor, and what it was opened on: user code may close it, and its number be given away."""

    descriptor: int
    facts: os.stat_result

    def is_open(self) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(self.facts, os.fstat(self.descriptor))
        return False

    def close(self) -> None:
        if self.is_open():
            os.close(self.descriptor)

    def is_at(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            return self.is_open() and os.path.samestat(self.facts, path.lstat())
        return False


class _Lock(msgspec.Struct, frozen=True):
    file: _Open
    directory: _Open


def lock(path: Path) -> None:
    """Say that this program uses a directory of its own, until `unlock`; a second call makes again what was removed.

    Raises OSError.
    """
    unlock(path)
    # Locked before it has its name: another program that starts now would take an unlocked one for that of a program
    # that has ended.
    unnamed = path / f"{LOCK}.new"
    opened = []
    try:
        opened.append(open_private(unnamed, os.O_RDWR | os.O_CREAT))  # to write: NFS locks nothing else
        fcntl.flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):  # the disk is full: other machines do not know of this program
            os.write(opened[0], msgspec.json.encode(identity()))
        unnamed.rename(path / LOCK)
        opened.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
        file, directory = (_Open(descriptor, os.fstat(descriptor)) for descriptor in opened)
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    _lock_directory(directory)
    _locks[path] = _Lock(file, directory)


def _lock_directory(directory: _Open) -> None:
    # A network file system has none for directories; or another program looks at this moment.
    with contextlib.suppress(OSError):
        fcntl.flock(directory.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def owns(path: Path) -> bool:
    """Whether this program has the lock of a directory, and directory, lock and descriptors all still exist."""
    found = _locks.get(path)
    return found is not None and found.directory.is_at(path) and found.file.is_at(path / LOCK)


def unlock(path: Path) -> None:
    """Say that this program does not use a directory of its own any more."""
    found = _locks.pop(path, None)
    if found is not None:
        found.file.close()
        found.directory.close()


def end(path: Path) -> None:
    """Say that the program of this process, which has used a directory of its own, has ended. Raises OSError."""
    try:
        if owns(path):
            os.truncate(path / LOCK, 0)
    finally:
        unlock(path)


def _let_go_in_child() -> None:
    # A fork shares the locks, and must not keep the directories of a program that has ended.
    for path in tuple(_locks):
        unlock(path)


os.register_at_fork(after_in_child=_let_go_in_child)


def is_locked(path: Path) -> bool:
    """Whether a living program uses this directory, in whichever pid namespace it runs.

    Raises OSError: it cannot be looked at (a disk that fails, no descriptor, no memory).
    """
    if _is_flocked(path / LOCK) or _is_flocked(path):
        return True
    try:
        age = time.clock_gettime(time.CLOCK_REALTIME) - path.stat().st_mtime
    except OSError:
        return False
    facts = facts_of(path / PROGRAM) or facts_of(path / LOCK)
    if facts:
        return lives(facts, age)
    # Its program is about to take it, or died before it could; or a cleaner was there at this moment.
    if age < _UNTAKEN and not (path / LOCK).exists():
        return True
    return _is_flocked(path / LOCK)  # it may have been taken since it was looked at


def _is_flocked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _UNKNOWN:
            raise
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # this file system has no locks
        return False
    finally:
        os.close(descriptor)
    return False


def identity() -> dict[str, object]:
    """Return an identity that distinguishes this process from a later one with the same pid."""
    pid = os.getpid()
    return {"pid": pid, "start": start_of(pid), "boot": boot_id(), "pid_namespace": pid_namespace()}


def is_elsewhere(facts: Mapping[str, object]) -> bool:
    """Whether the process of an `identity` is, or was, one of another machine, or of this one before it was started."""
    return facts.get("boot") != boot_id()


def lives(facts: Mapping[str, object], age: float) -> bool:
    """Whether the process of an `identity` lives.

    Args:
        age: Seconds since it has set the times of its directory: they tell of a process that cannot be looked for.
    """
    pid = facts.get("pid")
    if not isinstance(pid, int) or not isinstance(facts.get("boot"), str):
        return False
    if is_elsewhere(facts):
        return age < _ELSEWHERE
    if facts.get("pid_namespace") != pid_namespace():
        return age < _SILENT
    try:
        return start_of(pid) == facts.get("start") and kernel_state(pid) not in ("", "Z", "X")
    except OSError:
        return True  # it cannot be told that it has ended


def facts_of(path: Path) -> dict[str, object]:
    """Return what such a file says; {}: it cannot be read, or is not complete. Raises OSError as `is_locked`."""
    try:
        with open(path, "rb") as file:
            facts = json.loads(file.read(_READ_MAX))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno in _UNKNOWN:
            raise
        return {}
    return facts if isinstance(facts, dict) else {}


def refresh(path: Path) -> None:
    """Set the times of a locked directory, and of what is in it, to now. Any thread. Raises OSError.

    A file keeps the time of its last change, which users read: cleaners use the latest of its times.
    """
    directory = _locks[path].directory
    _lock_directory(directory)
    now = time.time_ns()
    with os.scandir(directory.descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                facts = entry.stat(follow_symlinks=False)
                changed = facts.st_mtime_ns if stat.S_ISREG(facts.st_mode) else now
                os.utime(entry.name, ns=(now, changed), dir_fd=directory.descriptor, follow_symlinks=False)
    os.utime(directory.descriptor, ns=(now, now))

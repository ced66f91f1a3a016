"""System calls that fail in one process of a program, by a library that is loaded before the C library.

A test compiles it (`library`) and starts a program with `environment_with`. That program, or the test, says with
`CallFaults` which call fails, in which process, and when.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["DAY", "ERRORS", "LEFT_OUT", "LEFT_OUT_OF_HOSTS", "OF_FILES", "CallFaults", "environment_with", "library"]

_SOURCE = Path(__file__).with_name("callfaults.c")
_TEXT = _SOURCE.read_text(encoding="utf-8")
#: The calls that can fail, as `enum function` of the source has them.
FUNCTIONS = [
    *re.findall(r"X\((\w+), (?:MINUS|NUMBER|NOTHING)\)", _TEXT),
    *re.findall(r"X\((pidfd_\w+)\)", _TEXT),
]
#: As `struct control` begins, up to the counts.
_CONTROL = struct.Struct("9iq")
_SIZE = _CONTROL.size + 4 * len(FUNCTIONS)
_SEEN = 6
DAY = 86400


def library(folder: Path) -> Path:
    """Compile it into ``folder``; the test is skipped where that cannot be done."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler (cc) on PATH")
    built = folder / "callfaults.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(built), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the library cannot be compiled here: {done.stderr.strip()[-300:]}")
    return built


def environment_with(library: Path, folder: Path) -> dict[str, str]:
    """Return what a program needs in its environment; `CallFaults(folder / "faults")` is its control."""
    (folder / "faults").write_bytes(bytes(_SIZE))
    return {"LD_PRELOAD": str(library), "MESHRT_TEST_FAULTS": str(folder / "faults")}


class CallFaults:
    """The control of all processes that have been given the file at ``path``."""

    def __init__(self, path: str | Path) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    @contextlib.contextmanager
    def failing(
        self, process: int, function: str, error: int, *, skip: int = 0, times: int = 1, files: bool = False
    ) -> Iterator[None]:
        """Let ``function`` fail.

        Args:
            process: A pid; negative, the pid of the parent of those that are meant.
            error: An `errno`.
            skip: How many calls succeed first.
            times: How many fail then.
            files: A read or a write is only meant if it is of a regular file.
        """
        with self._armed(process, FUNCTIONS.index(function), error, skip, times, files):
            yield

    @contextlib.contextmanager
    def counting(self, process: int, *, files: bool = False) -> Iterator[None]:
        """Count what a process calls; `counts` says how often. ``files``: as in `failing`."""
        with self._armed(process, -1, 0, 0, 0, files):
            yield

    @contextlib.contextmanager
    def _armed(self, process: int, function: int, error: int, skip: int, times: int, files: bool) -> Iterator[None]:
        self._map[_CONTROL.size :] = bytes(4 * len(FUNCTIONS))
        self._map[4:36] = struct.pack("8i", process, function, error, skip, times, 0, 0, files)
        self._map[:4] = struct.pack("i", 1)  # last: it counts from here on
        try:
            yield
        finally:
            self._map[:4] = struct.pack("i", 0)

    @property
    def failed(self) -> int:
        """How many calls have failed since the last `failing` began."""
        return int(_CONTROL.unpack_from(self._map)[_SEEN + 1])

    def counts(self) -> dict[str, int]:
        """Return how often each function was called since the last `counting` began; 0 is left out."""
        numbers = struct.unpack_from(f"{len(FUNCTIONS)}i", self._map, _CONTROL.size)
        return {name: count for name, count in zip(FUNCTIONS, numbers, strict=True) if count}

    def shift_clock(self, seconds: int) -> None:
        """Let the clock of the day of all processes be off by so much."""
        self._map[_CONTROL.size - 8 : _CONTROL.size] = struct.pack("q", seconds)


#: Errors that each call can meet on a healthy system that is short of something.
_TAKES = (errno.EMFILE, errno.ENOMEM)
_FILLS = (errno.ENOSPC, errno.EIO)
ERRORS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("accept4", "dup", "epoll_create1", "eventfd", "fdopendir", "memfd_create", "opendir"), _TAKES),
    **dict.fromkeys(("pidfd_open", "pipe2", "socket", "socketpair"), _TAKES),
    **dict.fromkeys(("open64", "openat64"), (errno.EMFILE, errno.ENOMEM, errno.EIO, errno.ENOSPC)),
    **dict.fromkeys(("fork", "vfork", "pthread_create"), (errno.EAGAIN, errno.ENOMEM)),
    **dict.fromkeys(("mmap64", "madvise"), (errno.ENOMEM,)),
    **dict.fromkeys(("epoll_ctl",), (errno.ENOMEM, errno.ENOSPC)),
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "poll", "waitpid", "wait4"), (errno.EINTR,)),
    **dict.fromkeys(("bind", "ftruncate64", "mkdir", "mkdirat", "rename", "renameat"), _FILLS),
    **dict.fromkeys(("mkfifo", "truncate64"), _FILLS),
    **dict.fromkeys(("fchmod", "fchmodat", "futimens", "utimensat"), (errno.ENOMEM, errno.EIO)),
    **dict.fromkeys(("fallocate", "posix_fallocate64"), (errno.ENOSPC, errno.EINTR)),
    **dict.fromkeys(("fsync",), _FILLS),
    **dict.fromkeys(("dup2", "fcntl64"), (errno.EMFILE,)),
    **dict.fromkeys(("fopen64",), (errno.EMFILE, errno.ENOMEM)),
    **dict.fromkeys(("flock",), (errno.EINTR, errno.ENOLCK)),
    **dict.fromkeys(("listen", "setsockopt"), (errno.ENOMEM,)),
    **dict.fromkeys(("pwrite64", "write", "writev"), (errno.ENOSPC, errno.EIO, errno.EINTR)),
    **dict.fromkeys(("pread64", "preadv64v2", "read", "readdir64"), (errno.EIO, errno.EINTR)),
    **dict.fromkeys(("recv", "recvmsg", "send", "sendmsg"), (errno.ENOMEM, errno.EINTR)),
    **dict.fromkeys(("connect",), (errno.ENOMEM, errno.EINTR)),
    **dict.fromkeys(("fstat64", "fstatat64", "stat64", "lstat64", "readlinkat"), (errno.ENOMEM, errno.EIO)),
    **dict.fromkeys(("rmdir", "unlink", "unlinkat"), (errno.ENOMEM, errno.EIO)),
}
#: Cells that are about files alone, with the reason.
OF_FILES = {
    ("root", function, error): "uvloop's library ends the process if an eventfd cannot be read or written, which no "
    "kernel refuses"
    for function in ("read", "write")
    for error in ("EIO", "ENOSPC")
}
#: Cells that are left out, with the reason.
LEFT_OUT = {
    ("rank", "connect", "EINTR"): "the socket of a terminal has a time limit: its connect does not wait",
    ("joining", "connect", "EINTR"): "Python waits for the connection, which the library has not begun",
    ("rank", "mmap64", "ENOMEM"): "a thread of Python that gets no memory for its first call is waited for, for ever",
}
#: ... where ranks are on other hosts.
LEFT_OUT_OF_HOSTS = {
    ("root", "mmap64", "ENOMEM"): "as that of a rank: each connection to another host is made by a thread of its own",
}
"""The rest is not called, or cannot fail for want of anything: `getsockopt`, `ioctl`, `kill`."""

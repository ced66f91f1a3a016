"""A pipe by which the kernel tells of the end of the root, without the help of any process.

The root holds the writing end, and writes nothing. When it ends, however it does, the kernel closes that end and sends
each process that has asked for it a signal of its choice: SIGKILL to the ranks, which then end also where C code holds
the GIL and the host agent is stopped; SIGCONT to the agent, which has to kill everything else.

The end is not seen as long as another process holds a copy of the writing end: a fork of the script that was made by C
code. (One that Python makes closes its copy.) The agent sees it then by the pidfd of the root.
"""

from __future__ import annotations

import fcntl
import os
import select
from pathlib import Path

from meshrt.transport.paths import closed_after

__all__ = ["RootPipe", "open_root_pipe", "signal_at_end"]


def _path(directory: str | Path) -> str:
    return f"{directory}/root"


class RootPipe:
    """The root's end, in its runtime directory."""

    def __init__(self, directory: str | Path) -> None:
        self.path: Path = Path(_path(directory))
        self._descriptors: list[int] = []
        self.make()

    def make(self) -> None:
        """Make it, or make it again if it was removed: processes that watch the old one still do. Raises OSError."""
        self._forget_unread()
        # Opened before it has its name: without a writing end it would say that the root has ended.
        unnamed = self.path.with_suffix(".new")
        unnamed.unlink(missing_ok=True)
        os.mkfifo(unnamed, 0o600)
        self._descriptors.append(_open_to_write(unnamed))
        unnamed.rename(self.path)

    def _forget_unread(self) -> None:
        """Close those without a name that no process watches: something may remove the pipe again and again."""
        for descriptor in tuple(self._descriptors):
            poll = select.poll()
            poll.register(descriptor, 0)
            if poll.poll(0):  # POLLERR: it has no reader
                self._descriptors.remove(descriptor)
                os.close(descriptor)

    def close(self) -> None:
        """Close it, at the end of the program or in a forked child; twice is fine."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def _open_to_write(path: Path) -> int:
    """Open a pipe that has no reader yet, only to write: as long as it has none the kernel says so (POLLERR)."""
    # Linux does not wait for a reader here.
    with closed_after(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)):
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def open_root_pipe(directory: str | Path) -> int:
    """Return a descriptor of the pipe, for `signal_at_end`. Raises FileNotFoundError if the root has ended."""
    return os.open(_path(directory), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def signal_at_end(pipe: int, number: int, receiver: int) -> int | None:
    """Have a signal sent when the root ends. Returns a descriptor to keep for that; None: the root has ended.

    Args:
        pipe: `open_root_pipe`, which may be inherited.
        number: The signal.
        receiver: A pid, or the negative number of a process group.
    """
    # Opened again: an open file has one receiver, and an inherited descriptor is the same open file.
    own = os.open(f"/proc/self/fd/{pipe}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(own, fcntl.F_SETSIG, number)
    fcntl.fcntl(own, fcntl.F_SETOWN, receiver)
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    try:
        ended = os.read(own, 1) == b""
    except BlockingIOError:  # it is there, and says nothing
        return own
    if ended:
        os.close(own)
        return None
    return own

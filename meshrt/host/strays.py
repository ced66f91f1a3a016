"""Orphans of ranks: children of the agent that it did not start, for it is their subreaper.

Only own children are signalled. They keep their number until they are reaped, so no stranger is ever hit; and the
children of one that is killed become children of the agent in turn, so all generations come by.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from meshrt.host.osutil import children_of

__all__ = ["Strays"]


class Strays:
    """Finds, reaps and kills them. `fileno` is readable when a child of the agent has ended."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._pipe, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._pipe

    def drain_signals(self) -> None:
        """Take what made `fileno` readable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe, 1 << 16)

    def _find(self, known: set[int]) -> list[int]:
        return [pid for pid in children_of(self._pid) if pid not in known]

    def reap(self, known: set[int]) -> None:
        """Reap those that have ended. ``known`` are the children that somebody else waits for."""
        for pid in self._find(known):
            _reap(pid)

    def kill(self, known: set[int]) -> bool:
        """Kill those that belong to no living rank, whatever session they are in; returns whether there were any.

        An orphan in the session of a process in ``known`` is that rank's own affair, as long as it lives.
        """
        strays = [pid for pid in self._find(known) if _session_of(pid) not in known]
        for pid in strays:
            _kill(pid)
        return bool(strays)

    def kill_all(self, seconds: float) -> None:
        """Kill every descendant of the agent; gives up after ``seconds``."""
        deadline = time.monotonic() + seconds
        while (children := children_of(self._pid)) and time.monotonic() < deadline:
            for pid in children:
                _kill(pid)
            time.sleep(0.002)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _reap(pid)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0

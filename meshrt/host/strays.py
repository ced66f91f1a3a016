"""Orphans of ranks: children of the agent that it did not start, for it is their subreaper.

An orphan of a living rank is left alone; when the rank ends, its descendants are ended too. The inherited number of an
orphan identifies its rank (`meshrt.host.family`); an orphan that has lost it lives as long as any rank does.

Only own children are signalled. They keep their pid until they are reaped, so no other process is hit. The children of
a killed one become children of the agent in turn, and their end is a signal again: so all generations are reached.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Set

from meshrt.host.child import Child
from meshrt.host.family import Families, new_family_block
from meshrt.host.osutil import children_of

__all__ = ["Strays"]


class Strays:
    """Finds, reaps and kills them. `fileno` is readable when a child of the agent has ended."""

    def __init__(self) -> None:
        #: Replaced by the numbers that the root sends.
        self.families = Families(new_family_block())
        self._pid = os.getpid()
        self._pipe, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor to poll; `sweep` takes what made it readable."""
        return self._pipe

    def sweep(self, ranks: Iterable[Child], zygotes: Set[int]) -> set[int | None]:
        """Reap orphans that have ended, and kill those whose rank has; to be called when `fileno` is readable.

        Args:
            ranks: Those that live, or are about to start.
            zygotes: Processes that may fork ranks which are not known yet.
        Returns:
            The families of which some are still ending; None stands for those without one.
        Raises:
            OSError: Orphans cannot be looked up; to be tried again.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe, 1 << 16)
        living = {child.birth.family: child for child in ranks}
        known = zygotes | {child.pid for child in living.values()}
        while True:
            reaped = False
            ending: set[int | None] = set()
            for pid in children_of(self._pid):
                if pid in known:
                    continue
                family = self.families.of(pid)
                if family is None:
                    unborn, orphaned = bool(zygotes), not living
                else:
                    rank = living.get(family)
                    unborn, orphaned = rank is not None and not rank.pid, rank is None
                if unborn:
                    continue  # it may be a rank that is reported in a moment
                if _reap(pid):
                    reaped = True
                elif orphaned and _kill(pid):
                    ending.add(family)
            if not reaped:
                return ending
            # Their children have become the agent's since the check.

    def kill_all(self, seconds: float) -> None:
        """Kill every descendant of the agent; gives up after ``seconds``."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # Without a look-up no process is known, which does not mean that there is none.
            with contextlib.suppress(OSError):
                children = children_of(self._pid)
                if not children:
                    return
                for pid in children:
                    _kill(pid)
                    _reap(pid)
            time.sleep(0.002)


def _kill(pid: int) -> bool:
    """Kill an own child; returns whether it may be."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:  # it has become another user's
        return False
    return True


def _reap(pid: int) -> bool:
    """Reap an own child that has ended; returns whether it had."""
    return os.waitpid(pid, os.WNOHANG)[0] == pid

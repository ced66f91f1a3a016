"""What the prompts of one session share: its console, the line that was typed last, and the receiver of their events.

A session has one prompt, and a further one for each ``debug`` command that runs in the one before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from meshrt.debug.rank.breakpoints import MeshBreaks
from meshrt.debug.rank.console import Console
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.rank.suspended import holding, may_break, raise_in, take_back
from meshrt.debug.rank.users_trace import TraceFunction, UsersTrace
from meshrt.inspect.capping import TEXT_LIMIT
from meshrt.inspect.facts import Facts

__all__ = ["Events", "Line", "Shared", "within_limit"]


def within_limit(characters: int) -> int:
    """Return how many characters of an answer are sent where so many are wanted: 0 to `TEXT_LIMIT`."""
    return max(0, min(characters, TEXT_LIMIT))


class Events(Protocol):
    """The events that the prompts report to their session, and one request. On the session's thread."""

    def elsewhere(self) -> TraceFunction | None:
        """Return the trace function for the code that the thread runs now; None: that code is this session's."""

    def opens(self) -> None:
        """Report that a stop is about to be shown."""

    def reads(self, reason: str) -> AbstractContextManager[None]:
        """Return a context in which lines are read: from the stop for ``reason`` until the thread is resumed."""

    def printed(self) -> None:
        """Report that output was printed that no prompt follows."""

    def over(self) -> None:
        """Report that the session will not stop again by itself."""


class Line:
    """The line that was typed last: how its answer is wanted, the facts beside its text, and whether it still runs.

    On the session's thread, except `came` and `interrupt`.

    Args:
        typed: Called with True when a line begins, with False when the outermost one has ended.
    """

    def __init__(self, typed: Callable[[bool], None]) -> None:
        self._typed = typed
        #: Values are shown in one line each, because the user compares them with those of other ranks.
        self.brief = False
        #: How many lines of a value are shown; None: all.
        self.lines: int | None = None
        #: Most characters of an answer that are sent.
        self.limit = TEXT_LIMIT
        #: Facts about a value that was printed.
        self.facts: Facts | None = None
        #: The error of the line; "": none.
        self.error = ""
        #: Number of running lines: a line may run others, as the commands of a breakpoint.
        self._running = 0
        #: It has arrived, and does not run yet.
        self._waiting = False
        #: It was interrupted by another thread.
        self._interrupted = False
        self._lock = threading.RLock()

    @property
    def runs(self) -> bool:
        """Whether it runs, or is about to. Any thread."""
        return bool(self._running or self._waiting)

    def came(self, waits: bool) -> None:
        """Note that the answer to a prompt has come; ``waits``: it is a line, which is going to run."""
        self._waiting = waits

    def begins(self) -> None:
        """Note that the line is about to run."""
        self._running += 1
        self._waiting = False
        self._typed(True)

    def ends(self) -> None:
        """Note that the line has run, and withdraw an interrupt that has not arrived yet."""
        holding(self._lock, self._ends)

    def _ends(self) -> None:
        self._running = max(0, self._running - 1)
        if not self._running:
            self._typed(False)
        self._waiting = False  # it has read further lines itself
        if self._interrupted:
            self._interrupted = False
            take_back()

    def interrupt(self, ident: int, wanted: Callable[[], bool]) -> bool:
        """Raise KeyboardInterrupt in what the line runs on thread ``ident``, once C code returns. On another thread.

        Args:
            wanted: Returns whether the line still runs.
        Returns:
            False if the line cannot be interrupted now.
        """
        with self._lock:
            if not wanted() or self._interrupted or not may_break(sys._current_frames().get(ident)):
                return False
            self._interrupted = True
            raise_in(ident, KeyboardInterrupt)
            return True

    def take(self) -> tuple[Facts | None, str]:
        """Return `facts` and `error`, and reset them."""
        facts, self.facts = self.facts, None
        error, self.error = self.error, ""
        return facts, error


@dataclass(frozen=True)
class Shared:
    """The parts that the prompts of one session share."""

    events: Events
    console: Console
    sources: SourceFetcher
    line: Line
    mesh_breaks: MeshBreaks
    #: Returns the user's own trace of the thread, as it was put aside.
    users_trace: Callable[[], UsersTrace]

"""Rank side: either the debugger's prompts or an IDE controls the threads of a rank, never both.

::

    prompts --an IDE attaches, nothing is stopped--> IDE --it detaches--> prompts
       '------ an IDE attaches, something is stopped or steps --> leaving --it runs on--> IDE
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Protocol

from meshrt.debug.rank.sessions import RankSessions
from meshrt.errors import MeshError

__all__ = ["Handover", "Taker"]


class Taker(Protocol):
    """An IDE, as the debugger of the rank sees it."""

    def take(self) -> None:
        """Take control of the threads, which are free from now on. Any thread; must not wait."""

    def breakpoint(self, frame: FrameType) -> bool:
        """Stop the calling thread, which runs ``frame``; False: the taker cannot."""

    def forked(self) -> None:
        """In a forked child of user code: trace nothing; the threads that would resume it are the parent's."""


class Handover:
    """Knows what controls the threads: the debugger, or an IDE. Any thread.

    Args:
        rest: Called with True when the debugger's own breakpoints are suspended, with False afterwards; and with the
            sessions of the IDEs that control the threads, or did.
    """

    def __init__(self, sessions: RankSessions, rest: Callable[[bool, Collection[str]], None]) -> None:
        self._sessions = sessions
        self._rest = rest
        self._taker: Taker | None = None
        self._taken = False
        #: What controls them, in words: ``the IDE of process 123``; "": the debugger.
        self.holder = ""
        #: That IDE has ended; the threads that it stopped stay stopped.
        self._orphaned = False
        #: Sessions of the IDEs that have used the present taker, in order.
        self._with: list[str] = []
        #: Guards `_entering`: threads that are about to stop; none may be taken. Reentrant: a signal handler may stop.
        self._lock = threading.RLock()
        self._entering = 0
        sessions.left = self._look

    def give(self, holder: str, taker: Taker, session: str = "") -> str:
        """Give the threads to ``taker`` once nothing is stopped or steps.

        Args:
            holder: The IDE in words, for messages.
            session: The IDE's, as named by breakpoints that belong to it.
        Returns:
            Where something is stopped or steps, if the threads could not be given at once; or "".
        """
        self._taken = False
        self._taker = taker
        self._with = []
        self.pass_on(holder, session)
        busy = self._sessions.busy()
        self._look()
        return str(busy.place()) if busy is not None and not self._taken else ""

    def take_back(self) -> None:
        """Give the threads back to the debugger: the taker has detached."""
        self._taker = None
        self.holder, self._orphaned = "", False
        self._rest(False, self._with)

    def orphan(self) -> None:
        """The IDE has ended: what it stopped stays stopped until another IDE attaches or the user resumes it."""
        self.holder, self._orphaned = "an IDE that has disconnected", True

    def pass_on(self, holder: str, session: str = "") -> None:
        """Give the threads to another IDE that uses the same taker; what is stopped stays stopped."""
        self.holder, self._orphaned = holder, False
        self._with.append(session)
        self._rest(True, self._with)

    def resting(self) -> str:
        """Return a note for a user who sets a breakpoint; "": the debugger controls the threads."""
        if not self.holder:
            return ""
        until = "continue resumes the ranks" if self._orphaned else "the IDE detaches"
        return f"breakpoints of the debugger are suspended on ranks of {self.holder}, until {until}"

    def check(self) -> None:
        """Raise MeshError if the debugger does not control the threads."""
        if self._orphaned:
            raise MeshError("the rank is stopped in an IDE that has disconnected; continue resumes the rank")
        if self.holder:
            raise MeshError(f"the rank is attached to {self.holder}; stop and resume the rank there")

    @contextlib.contextmanager
    def entering(self) -> Iterator[None]:
        """Mark the calling thread as about to stop: in this block, the threads are not given to a taker."""
        with self._lock:
            self._entering += 1
        try:
            yield
        finally:
            with self._lock:
                self._entering -= 1
            self._look()

    def breakpoint(self, frame: FrameType) -> bool:
        """Stop the calling thread for the taker; False: the debugger controls the threads."""
        taker = self._taker
        return taker is not None and self._taken and taker.breakpoint(frame)

    def forked(self) -> None:
        """In a forked child of user code: forget the taker."""
        self._lock, self._entering = threading.RLock(), 0  # held by threads that do not exist here
        taker, self._taker = self._taker, None
        self.holder, self._orphaned = "", False
        if taker is not None:
            taker.forked()

    def _look(self) -> None:
        taker = self._taker
        with self._lock:
            if taker is None or self._taken or self._entering or self._sessions.busy() is not None:
                return
            self._taken = True
        taker.take()

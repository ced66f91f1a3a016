"""Rank side: one at a time has the threads of a rank, the debugger's prompts or an IDE.

::

    prompts --an IDE comes, nothing stands--> IDE --it leaves--> prompts
       '------ an IDE comes, something stands or steps --> leaving --it runs on--> IDE
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
        """The threads are free: they are the taker's from now on. Any thread; must not wait."""

    def breakpoint(self, frame: FrameType) -> bool:
        """Stop the calling thread, which runs ``frame``; False: it cannot."""

    def forked(self) -> None:
        """In a forked child of user code: trace nothing there; the threads that would let it go on are the parent's."""


class Handover:
    """Who has the threads. Any thread.

    Args:
        rest: Called with True when the debugger's own breakpoints are to stop nothing, and with False afterwards, and
            with the sessions of IDEs that have the threads, or had them.
    """

    def __init__(self, sessions: RankSessions, rest: Callable[[bool, Collection[str]], None]) -> None:
        self._sessions = sessions
        self._rest = rest
        self._taker: Taker | None = None
        self._taken = False
        #: Who has them, in words: ``the IDE of process 123``; "": the debugger.
        self.holder = ""
        #: That one is gone, and what stands stays so.
        self._orphaned = False
        #: Sessions of IDEs that have them, or had them since the taker has.
        self._with: list[str] = []
        #: Threads that are about to stand, or do: none of them is to be taken. Reentrant: a signal's handler may stop.
        self._lock = threading.RLock()
        self._entering = 0
        sessions.left = self._look

    def give(self, holder: str, taker: Taker, session: str = "") -> str:
        """Let ``taker`` have the threads once nothing stands or steps. Returns where something does, or "".

        Args:
            session: The IDE's, as breakpoints name it that go with it.
        """
        self._taken = False
        self._taker = taker
        self._with = []
        self.pass_on(holder, session)
        standing = self._sessions.busy()
        self._look()
        return str(standing.place()) if standing is not None and not self._taken else ""

    def take_back(self) -> None:
        """The taker has left."""
        self._taker = None
        self.holder, self._orphaned = "", False
        self._rest(False, self._with)

    def orphan(self) -> None:
        """The one who has them is gone, and what stands stays so until another one comes, or a person lets it go on."""
        self.holder, self._orphaned = "an IDE that is gone", True

    def pass_on(self, holder: str, session: str = "") -> None:
        """Another one has what was left standing, with the same taker."""
        self.holder, self._orphaned = holder, False
        self._with.append(session)
        self._rest(True, self._with)

    def resting(self) -> str:
        """Return what a person who sets a breakpoint has to know; "": the debugger has the threads."""
        if not self.holder:
            return ""
        rest = f"{self.holder} has ranks here: breakpoints of the debugger rest there until"
        return f"{rest} " + ("continue lets those go on" if self._orphaned else "it leaves")

    def check(self) -> None:
        """Raise MeshError if the threads are somebody else's."""
        if self._orphaned:
            raise MeshError("it stands where an IDE that is gone has left it; continue lets it go on")
        if self.holder:
            raise MeshError(f"{self.holder} has this rank; it is stopped and let go on there")

    @contextlib.contextmanager
    def entering(self) -> Iterator[None]:
        """The calling thread is about to stand: who has it meanwhile goes on having it."""
        with self._lock:
            self._entering += 1
        try:
            yield
        finally:
            with self._lock:
                self._entering -= 1
            self._look()

    def breakpoint(self, frame: FrameType) -> bool:
        """Stop the calling thread for the one who has it; False: the debugger has it."""
        taker = self._taker
        return taker is not None and self._taken and taker.breakpoint(frame)

    def forked(self) -> None:
        """In a forked child of user code: nobody has its threads."""
        self._lock, self._entering = threading.RLock(), 0  # of threads that are not there
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

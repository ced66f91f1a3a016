"""The clock of deadlines, which is suspended while a user holds a rank at a breakpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from meshrt.hooks.table import hooks

__all__ = ["Deadline", "HoldClock"]


class Deadline:
    """When a wait ends that lasts ``seconds`` from now on, by the clock that ``now`` reads. Any thread."""

    __slots__ = ("_at", "_now")

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now = now
        self._at = now() + seconds

    def left(self) -> float:
        """Return how many seconds are left; less than 0: it has passed."""
        return self._at - self._now()


class HoldClock:
    """A monotonic clock, seconds, that is suspended while anything is held. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds = 0
        self._since = 0.0
        self._lost = 0.0
        #: Threads that run a line which a user has typed at the prompt of a stopped rank.
        self._typed: set[int] = set()

    def now(self) -> float:
        """Return the time of this clock, seconds; it does not advance while a rank is held. Any thread."""
        with self._lock:
            return (self._since if self._holds else time.monotonic()) - self._lost

    @property
    def held(self) -> bool:
        """Whether anything is held. Any thread."""
        return bool(self._holds)

    def typed(self, begins: bool) -> None:
        """Begin or end a line that a user has typed, on the calling thread: who has typed a time-out waits for it."""
        if begins:
            self._typed.add(threading.get_ident())
        else:
            self._typed.discard(threading.get_ident())

    def of_thread(self) -> Callable[[], float]:
        """Return what tells the time, seconds, for time-outs that begin on the calling thread now."""
        return time.monotonic if self.runs_typed else self.now

    @property
    def runs_typed(self) -> bool:
        """Whether the calling thread runs a line that a user has typed."""
        return bool(self._typed) and threading.get_ident() in self._typed

    def advance(self, seconds: float) -> None:
        """Go forward by ``seconds``, also while it is suspended. Who waits has to be woken."""
        with self._lock:
            self._lost -= seconds

    def hold(self, held: bool) -> None:
        """Begin or end one hold; they count."""
        with self._lock:
            before = bool(self._holds)
            if held:
                if not self._holds:
                    self._since = time.monotonic()
                self._holds += 1
            elif self._holds:
                self._holds -= 1
                if not self._holds:
                    self._lost += time.monotonic() - self._since
            changed = bool(self._holds) != before
        if changed and hooks.hold_changed:
            hooks.run(hooks.hold_changed, held)

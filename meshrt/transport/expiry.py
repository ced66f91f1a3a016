"""Calls that have a limited time, and end when it has passed. One timer serves all of them."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from meshrt.transport.clock import HoldClock

__all__ = ["Expiring", "Expiry"]

#: Seconds between two looks while the clock is suspended.
_HELD_LOOK = 0.1
#: So many entries are kept before those of calls that are done are looked for.
_MANY = 1024


class Expiring(Protocol):
    """What has a limited time."""

    @property
    def finished(self) -> bool:
        """Whether it is done."""

    def expire(self, seconds: float) -> object:
        """Its time, ``seconds``, has passed. It must not block; runs no user code."""


class Expiry:
    """Ends what is not done in time. Any thread. Keeps nothing alive.

    Args:
        clock: The time is measured on it.
        later: Calls a function after some seconds, on a thread that must not be blocked.
    """

    def __init__(self, clock: HoldClock, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._clock = clock
        self._later = later
        self._lock = threading.Lock()
        self._entries: list[tuple[float, int, float, weakref.ref[Expiring]]] = []
        self._numbers = itertools.count()
        #: The time of the entry that the timer is set for.
        self._timer = math.inf
        self._many = _MANY

    def add(self, call: Expiring, seconds: float, begun: float | None = None) -> None:
        """Have ``call.expire(seconds)`` called after ``seconds``, unless it is done by then.

        Args:
            begun: When they begin, on the clock; None: now.
        """
        if self._clock.runs_typed:
            # The user who has typed the call waits for its end, at the prompt that suspends the clock.
            self._later(seconds, functools.partial(_expire, weakref.ref(call), seconds))
            return
        now = self._clock.now()
        at = (now if begun is None else begun) + seconds
        with self._lock:
            if len(self._entries) >= self._many:
                self._entries = [entry for entry in self._entries if _is_open(entry[3]())]
                heapq.heapify(self._entries)
                self._many = max(_MANY, 2 * len(self._entries))
            heapq.heappush(self._entries, (at, next(self._numbers), seconds, weakref.ref(call)))
            if at >= self._timer:
                return
            self._timer = at
        self._later(max(0.0, at - now), functools.partial(self._look, at))

    def due(self) -> float:
        """Return when the next call ends that is not done, on the clock; infinity: there is none."""
        with self._lock:
            return min((at for at, _, _, call in self._entries if _is_open(call())), default=math.inf)

    def look(self) -> None:
        """End what is due now, because the clock has gone forward: its timer would notice that later."""
        due = []
        with self._lock:
            while self._entries and self._entries[0][0] <= self._clock.now():
                due.append(heapq.heappop(self._entries))
        for _, _, seconds, call in due:
            _expire(call, seconds)

    def _look(self, at: float) -> None:
        due = []
        with self._lock:
            if at != self._timer:
                return  # an earlier one was added after this timer, and has set another one
            now = self._clock.now()
            while self._entries and (self._entries[0][0] <= now or not _is_open(self._entries[0][3]())):
                due.append(heapq.heappop(self._entries))
            at = self._timer = self._entries[0][0] if self._entries else math.inf
        if at < math.inf:
            self._later(max(at - now, _HELD_LOOK if self._clock.held else 0.0), functools.partial(self._look, at))
        for _, _, seconds, call in due:
            _expire(call, seconds)


def _expire(call: weakref.ref[Expiring], seconds: float) -> None:
    found = call()
    if found is not None and not found.finished:
        found.expire(seconds)


def _is_open(call: Expiring | None) -> bool:
    return call is not None and not call.finished

"""Functions that a loop calls when their time has come."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable

__all__ = ["Timers"]

_Timer = tuple[float, int, Callable[[], object]]


class Timers:
    """The timers of one loop. `add` may be called from any thread, and from signal handlers; the rest on that loop."""

    def __init__(self) -> None:
        #: There is no lock around it: a signal handler may add to it while this thread does.
        self._new: deque[_Timer] = deque()
        self._heap: list[_Timer] = []
        #: Those of one time are called in the order in which they were added.
        self._numbers = itertools.count()

    def add(self, seconds: float, function: Callable[[], object]) -> None:
        """Call ``function`` after ``seconds``. The caller must wake the thread that waits in `wait`."""
        self._new.append((time.monotonic() + seconds, next(self._numbers), function))

    def wait(self) -> float | None:
        """Return the seconds until the first one is due, at least 0; None: there is none."""
        self._sort()
        return max(0.0, self._heap[0][0] - time.monotonic()) if self._heap else None

    def due(self) -> list[Callable[[], object]]:
        """Return and forget those that are due: timers that they add are due at the next call, at the earliest."""
        self._sort()
        now = time.monotonic()
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def _sort(self) -> None:
        while self._new:
            heapq.heappush(self._heap, self._new.popleft())

"""Until when each of some connections has time. One timer serves all of them: most are done long before."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Deadlines"]

K = TypeVar("K")


class Deadlines(Generic[K]):
    """One thread: that of ``later``.

    Args:
        later: Calls a function after some seconds, on that thread.
        expired: Called with each one that has no time left; it is forgotten before.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], object], expired: Callable[[K], object]) -> None:
        self._later = later
        self._expired = expired
        self._at: dict[K, float] = {}
        #: When the timer calls that counts.
        self._timer = math.inf

    def set(self, key: K, at: float) -> None:
        """``key`` has time until ``at`` (monotonic), whatever was set before."""
        self._at[key] = at
        self._arm(at)

    def drop(self, key: K) -> None:
        """``key`` is done; a no-op if it was not set, or has expired."""
        self._at.pop(key, None)

    def _arm(self, at: float) -> None:
        if at < self._timer:
            self._timer = at
            self._later(max(0.0, at - time.monotonic()), functools.partial(self._look, at))

    def _look(self, at: float) -> None:
        if at != self._timer:
            return  # an earlier one was set after this timer, and has set another one
        self._timer = math.inf
        now = time.monotonic()
        for key in [key for key, end in self._at.items() if end <= now]:
            del self._at[key]
            self._expired(key)
        if self._at:
            self._arm(min(self._at.values()))

"""Rank side: expressions of breakpoints that raise, counted: a loop may reach one a million times a second."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from meshrt.debug.dap.operations import Raising
from meshrt.hooks.services import RankServices

__all__ = ["Raisings"]

#: Seconds between two reports of the same.
_EVERY = 1.0


class Raisings:
    """The raising expressions of one engine.

    Args:
        tell: Called on the control thread with what has raised since it was told the last time, and how often.
        clock: Seconds, as `time.monotonic` tells them.
    """

    def __init__(
        self,
        services: RankServices,
        tell: Callable[[Sequence[Raising]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._services = services
        self._tell_of = tell
        self._clock = clock
        self._heard: deque[tuple[str, str, int, str, str]] = deque()
        #: The first of each kind.
        self._first: dict[tuple[str, str, int, str, str], Raising] = {}
        self._telling = False
        self._next = 0.0

    def hear(self, raised: Raising) -> None:
        """Count one. On the thread that evaluated it; without a lock, as the user may stop that thread anywhere."""
        kind = raised.kind
        new = kind not in self._first
        if new:
            self._first[kind] = raised
        self._heard.append(kind)
        if new or not self._telling:
            self._telling = True
            self._services.call_later(0.0 if new else max(0.0, self._next - self._clock()), self._tell)

    def _tell(self) -> None:
        self._telling = False  # first: errors from here on are reported anew
        self._next = self._clock() + _EVERY
        times = Counter(self._heard.popleft() for _ in range(len(self._heard)))
        rows = [msgspec.structs.replace(self._first[kind], times=count) for kind, count in times.items()]
        if rows:
            self._tell_of(rows)

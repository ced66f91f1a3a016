"""Rank side: expressions of breakpoints that raise, counted: a loop may reach one a million times a second."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from meshrt.debug.dap.engine.expressions import Raised
from meshrt.hooks.facts import Body
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
        tell: Callable[[list[Body]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._services = services
        self._tell_of = tell
        self._clock = clock
        self._heard: deque[tuple[str, str, int, str, str]] = deque()
        #: The text of the first error of each kind.
        self._texts: dict[tuple[str, str, int, str, str], str] = {}
        self._telling = False
        self._next = 0.0

    def hear(self, raised: Raised) -> None:
        """Count one. On the thread that evaluated it; without a lock, as the user may stop that thread anywhere."""
        kind = raised[:5]
        new = kind not in self._texts
        if new:
            self._texts[kind] = raised.text
        self._heard.append(kind)
        if new or not self._telling:
            self._telling = True
            self._services.call_later(0.0 if new else max(0.0, self._next - self._clock()), self._tell)

    def _tell(self) -> None:
        self._telling = False  # first: errors from here on are reported anew
        self._next = self._clock() + _EVERY
        times = Counter(self._heard.popleft() for _ in range(len(self._heard)))
        rows = [
            {
                "what": what,
                "file": file,
                "line": line,
                "expression": expression,
                "error": error,
                "text": self._texts[what, file, line, expression, error],
                "times": count,
            }
            for (what, file, line, expression, error), count in times.items()
        ]
        if rows:
            self._tell_of(rows)

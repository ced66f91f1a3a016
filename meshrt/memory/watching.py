"""A view that is watched: repeated looks, with the growth since the last look and since the first.

Counting uses a rank's processor, and its GIL in short pieces. A view that is watched begins with a small budget for
each look. If that was too little, the next look has twice as much, since only variables that were counted completely
can be compared. After each look the ranks are left alone until its time is no more than `SHARE` of the whole.
"""

from __future__ import annotations

from collections.abc import Callable

from meshrt.memory.document import Document
from meshrt.memory.growth import add_growth
from meshrt.memory.walk import BUDGET

__all__ = ["SHARE", "Pace", "watch"]

#: Share of the time of the rank that counts longest.
SHARE = 0.05
#: Processor milliseconds for a rank: at the first look, and at most.
_FIRST, _MOST = 50.0, 5000.0


class Pace:
    """The looks of one watch.

    Args:
        every: Least seconds between two looks.
        milliseconds: Processor time for the variables of one rank, as the user has set it; None: no limit.
        adapts: Whether the user has not set it.

        Attributes:
            milliseconds: Processor time for the next look.
            seconds: Time until the next look.
    """

    def __init__(self, every: float, milliseconds: float | None, *, adapts: bool) -> None:
        self._every = every
        self._adapts = adapts
        self.milliseconds = _FIRST if adapts else milliseconds
        self.seconds = every
        self._took = 0.0
        self._left: float | None = None

    def looked(self, document: Document) -> None:
        """Set the time and the budget of the next look from the result of the last one."""
        self._took = max((row.counted or 0.0 for row in document.ranks), default=0.0)
        self.seconds = max(self._every, self._took / SHARE)
        unfinished = any(size.why == BUDGET for row in document.variables or () for size in row.sizes)
        self._left = self.milliseconds if unfinished else None
        if unfinished and self._adapts and self.milliseconds is not None:
            self.milliseconds = min(_MOST, 2 * self.milliseconds)

    def text(self) -> str:
        """Return a line about the next look; "" if nothing slows it down."""
        words = []
        if self._left is not None:
            more = self.milliseconds if self._adapts and self.milliseconds != self._left else None
            then = f"the next look has {more:g} ms" if more else "their growth is not known: see --budget, --exact"
            words.append(f"{self._left:g} ms per rank were not enough for all variables; {then}")
        if self.seconds > self._every:
            words.append(
                f"counting took {self._took * 1000:.0f} ms of a rank: next look in {self.seconds:.1f} s, so that "
                f"counting uses {SHARE:.0%} of its time"
            )
        return "\n".join(words)


def watch(
    ask: Callable[[float | None], Document],
    show: Callable[[Document, str], None],
    wait: Callable[[float], None],
    pace: Pace,
    first: Document | None = None,
) -> None:
    """Look until a function raises: the user has ended it, the program has ended, or the reader of the views is gone.

    Args:
        ask: Looks, with the given processor milliseconds for the variables of one rank; None: no limit.
        show: Shows a look, and a line about the wait for the next one ("": nothing to say).
        wait: Waits for some seconds.
        pace: Time and budget of the looks.
        first: An earlier view; the growth since the first look is then the growth since this view.
    """
    before = ask(pace.milliseconds)
    first = before if first is None else first
    pace.looked(before)
    while True:
        wait(pace.seconds)
        document = ask(pace.milliseconds)
        pace.looked(document)
        show(add_growth(document, before, first), pace.text())
        before = document

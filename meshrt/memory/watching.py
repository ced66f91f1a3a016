"""A view that is watched: looked at again and again, with what has grown since the last look and since the first."""

from __future__ import annotations

import time
from collections.abc import Callable

from meshrt.memory.document import Document
from meshrt.memory.growth import add_growth
from meshrt.memory.pace import Pace

__all__ = ["watch"]


def watch(
    ask: Callable[[float | None], Document],
    show: Callable[[Document, str], None],
    pace: Pace,
    first: Document | None = None,
) -> None:
    """Look until ``ask`` raises: the person, or the program, has enough.

    Args:
        ask: Looks, with so many milliseconds of a processor for the variables of one rank.
        show: Shows a look, and says what the next one waits for ("": nothing).
        first: An earlier view; the growth in all is since then.
    """
    before = ask(pace.milliseconds)
    first = before if first is None else first
    pace.looked(before)
    while True:
        time.sleep(pace.seconds)
        document = ask(pace.milliseconds)
        pace.looked(document)
        show(add_growth(document, before, first), pace.text())
        before = document

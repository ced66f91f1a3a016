"""A view that is watched: repeated looks, with the growth since the last look and since the first."""

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
    """Look until ``ask`` raises: the user has ended it, or the program has ended.

    Args:
        ask: Looks, with the given processor milliseconds for the variables of one rank; None: no limit.
        show: Shows a look, and a line about the wait for the next one ("": nothing to say).
        pace: Time and budget of the looks.
        first: An earlier view; the growth since the first look is then the growth since this view.
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

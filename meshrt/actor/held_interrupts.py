"""SIGINT in the rank of a script: it interrupts the script and its exit, and never the runtime before or behind them.

One that comes elsewhere is held until the next of these parts begins.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["hold_interrupts", "interruptible"]

_held: list[int] = []


def hold_interrupts() -> None:
    """Begin. Main thread of a rank that runs a script."""
    signal.signal(signal.SIGINT, _hold)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGINT as Python does in a part of the script, one that was held at once. Main thread.

    A handler of the script's own stays in place; so does any in a process that holds none.
    """
    if signal.getsignal(signal.SIGINT) is not _hold:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _held:
            _held.clear()
            raise KeyboardInterrupt
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _hold)


def _hold(number: int, _frame: FrameType | None) -> None:
    _held.append(number)

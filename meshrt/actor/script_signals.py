"""SIGINT and SIGTERM in the rank of a script: they are for the script and its exit, with the handlers of the script.

Elsewhere they would interrupt the runtime. They are held until the next of these parts begins.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["hold_signals", "of_script"]

#: The handlers of the script, while neither it nor its exit runs; empty: this process is not the rank of a script.
_theirs: dict[int, Any] = {}
_held: list[int] = []


def hold_signals() -> None:
    """Begin. Main thread of a rank that runs a script."""
    _theirs.update({signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL})
    for number in _theirs:
        signal.signal(number, _hold)


@contextlib.contextmanager
def of_script() -> Iterator[None]:
    """Handle both as in the script, first those that were held. Main thread; nested, and elsewhere, without effect."""
    if all(signal.getsignal(number) is not _hold for number in _theirs):
        yield
        return
    try:
        for number, handler in _theirs.items():
            if signal.getsignal(number) is _hold:  # else C code has taken it
                signal.signal(number, handler)
        while _held:
            signal.raise_signal(_held.pop())
        yield
    finally:
        try:
            _take_over()
        except BaseException:  # of a handler: one that comes here is the last that is not held
            _take_over()
            raise


def _take_over() -> None:
    for number in _theirs:
        handler = signal.getsignal(number)
        if handler is not _hold and handler is not None:  # None: C code has set it, and nobody can put it back
            _theirs[number] = handler
            signal.signal(number, _hold)


def _hold(number: int, _frame: FrameType | None) -> None:
    _held.append(number)

"""Waiting for a condition: every wait of the tests has a time-out, and none is a fixed pause."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["holds_within", "wait_until"]

_PAUSE = 0.005


def holds_within(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether ``condition()`` becomes true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def wait_until(condition: Callable[[], object], seconds: float = 10, what: str = "") -> None:
    """Return as soon as ``condition()`` is true; fail the test after ``seconds``."""
    if not holds_within(seconds, condition):
        raise AssertionError(f"not within {seconds} s: {what or getattr(condition, '__name__', condition)}")

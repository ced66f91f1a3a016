"""Durations, as a person reads them."""

from __future__ import annotations

import time

__all__ = ["since"]


def since(start: float, now: float | None = None) -> str:
    """Return how long ago ``start`` (epoch seconds) was: ``"4 s"``, ``"12 min"``."""
    seconds = max(0.0, (time.time_ns() / 1e9 if now is None else now) - start)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"

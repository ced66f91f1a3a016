"""A module beside the actor's own that stops. Ranks import this module."""

from __future__ import annotations

from tests.support.markers import marked_line

__all__ = ["line_of", "twice"]


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


def twice(number: int) -> int:
    inner = number * 2
    breakpoint()  # @twice
    return inner

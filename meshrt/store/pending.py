"""Questions of one connection that wait for an answer, by number."""

from __future__ import annotations

import itertools
from typing import Generic, TypeVar

__all__ = ["Pending"]

T = TypeVar("T")


class Pending(Generic[T]):
    """A table of what waits for answers. Any thread: each change is one step."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, waiting: T) -> int:
        """Note what waits for a new question. Returns the number of the question."""
        number = next(self._numbers)
        self._open[number] = waiting
        return number

    def find(self, number: int) -> T | None:
        """Return what waits for the answer to a question; None: nothing does any more."""
        return self._open.get(number)

    def replace(self, number: int, waiting: T) -> None:
        """From now on ``waiting`` waits for the answer instead."""
        self._open[number] = waiting

    def remove(self, number: int) -> None:
        """Nothing waits for the answer any more."""
        self._open.pop(number, None)

    def clear(self) -> list[T]:
        """No answers will come. Returns what has waited for them."""
        waiting, self._open = list(self._open.values()), {}
        return waiting

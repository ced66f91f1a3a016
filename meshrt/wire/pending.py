"""What waits for the answers of one peer: each question has a number, which its answer has too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

__all__ = ["PendingTable"]

T = TypeVar("T")


class PendingTable(Generic[T]):
    """A table of what waits for answers. Any thread: each change is one step.

    Args:
        numbers: Numbers the questions; several tables may share it.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._numbers = numbers or itertools.count(1)
        self._waiting: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: T) -> int:
        """Note what waits for a new question. Returns the number of the question."""
        number = next(self._numbers)
        self._waiting[number] = waiting
        return number

    def find(self, number: int) -> T | None:
        """Return what waits for the answer to a question; None: nothing does any more."""
        return self._waiting.get(number)

    def replace(self, number: int, waiting: T) -> None:
        """From now on ``waiting`` waits for the answer instead."""
        self._waiting[number] = waiting

    def remove(self, number: int) -> T | None:
        """Return what has waited for the answer; nothing does any more. None: nothing did."""
        return self._waiting.pop(number, None)

    def waiting(self) -> Sequence[tuple[int, T]]:
        """Return the questions that are not answered, with what waits for their answers."""
        return tuple(self._waiting.items())

    def clear(self) -> Iterator[T]:
        """No answers will come: remove and return what waits for them, one by one."""
        while self._waiting:
            yield self._waiting.popitem()[1]

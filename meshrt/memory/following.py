"""A list or a deque, gone through while others put in and take out at its ends: nothing is missed, or it is said so.

What is taken out at the front moves all that is behind: whoever goes on at the same index passes over so many. So each
piece ends before one of the objects that were read, the **anchor**, and the next one begins with it. Where that is not
where it was, it is looked for nearby; where it is gone, what was counted is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

__all__ = ["SLICE", "Followed"]

#: Objects of one slice of the walk.
SLICE = 4096
#: The anchor is that one of so many last objects to which the fewest refer: it is there only once.
_TAIL = 8
#: How far an anchor is looked for, to either side; and how often, as it may be moved again meanwhile.
_NEAR = 16 * SLICE
_ATTEMPTS = 4


class Followed:
    """Goes through a sequence, as far as it went at first.

    Args:
        read: Returns the objects from one index up to another, those that there are, in one call of C.
        size: Returns how many there are.
        step: How many are read at once: copies, which are let go of bit by bit.

    Attributes:
        over, lost: As in `meshrt.memory.contents.Source`.
    """

    def __init__(self, read: Callable[[int, int], list[Any]], size: Callable[[], int], step: int = SLICE) -> None:
        self._read = read
        self._size = size
        self._step = step
        self._left = size()
        self._copy: list[Any] = []
        #: The first object of all; the anchor, with which the next piece begins, and where it was.
        self._first: Any = None
        self._anchor: Any = None
        self._at = -1
        self.lost = False
        if step > SLICE:
            self._copy = self._piece()  # as it is now
        self.over = not self._left and not self._copy

    @property
    def copied(self) -> bool:
        return bool(self._copy)

    def take(self) -> list[Any]:
        """Return the next ones, in no order."""
        if not self._copy:
            self._copy = self._piece()
        if len(self._copy) <= SLICE:
            items, self._copy = self._copy, []
        else:
            items = self._copy[-SLICE:]
            del self._copy[-SLICE:]
        self.over = not self._left and not self._copy
        return items

    def _piece(self) -> list[Any]:
        count = min(self._step, self._left)
        if self._at < 0:
            begin, items = 0, self._read(0, count)
            self._first = items[0] if items else None
        else:
            begin, items = self._next(count)
        self._anchor = None  # no reference to what is handed out: whoever looks at it counts them
        if len(items) < count or count == self._left:
            self._left = 0
            return items
        references = list(map(getrefcount, items[-_TAIL:]))
        kept = len(items) - _TAIL + references.index(min(references))
        self._anchor, self._at = items[kept], begin + kept
        del items[kept:]
        self._left -= kept
        return items

    def _next(self, count: int) -> tuple[int, list[Any]]:
        """Return where the next piece begins, and what is there."""
        for _ in range(_ATTEMPTS):
            found = self._read(self._at, self._at + count)
            if found and found[0] is self._anchor:
                return self._at, found
            begin = max(0, self._at - _NEAR)
            near = list(map(id, self._read(begin, self._at + _NEAR)))
            if id(self._anchor) not in near:
                break
            self._at = begin + near.index(id(self._anchor))
        # The anchor is gone: with all before it, or with all behind it, or out of the midst.
        front = self._read(0, 1)
        intact = bool(front) and front[0] is self._first
        if intact and not self._read(self._at, self._at + 1):
            return self._at, []  # what is there was counted
        self.lost = True
        begin = self._at if intact else max(0, self._size() - self._left)
        return begin, self._read(begin, begin + count)

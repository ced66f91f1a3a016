"""A list or a deque, read while other threads add and remove at its ends: nothing is missed, or the loss is reported.

An element removed at the front moves all elements behind it, so a reader that continues at the same index would skip
some. So each piece ends before one of the objects that were read, the **anchor**, and the next piece begins with it. If
the anchor has moved, it is searched nearby; if it is gone, the count is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount

__all__ = ["SLICE", "Followed"]

#: Objects of one slice of the walk.
SLICE = 4096
#: The anchor is chosen among so many last objects: the one with the fewest referrers, as it is there only once.
_TAIL = 8
#: Elements to either side that are searched for an anchor; and attempts, as it may move again meanwhile.
_NEAR = 16 * SLICE
_ATTEMPTS = 4


class Followed:
    """Reads a sequence, up to the length that it had at first.

    Args:
        read: Returns the objects between two indices, as many as there are, in one C call.
        size: Returns the number of objects.
        step: Number of objects that are read at once, as copies that are released bit by bit.

    Attributes:
        over, lost: As in `meshrt.memory.contents.Source`.
    """

    def __init__(self, read: Callable[[int, int], list[object]], size: Callable[[], int], step: int = SLICE) -> None:
        self._read = read
        self._size = size
        self._step = step
        self._left = size()
        self._copy: list[object] = []
        #: The first object; the anchor, with which the next piece begins, and the index where it was.
        self._first: object = None
        self._anchor: object = None
        self._at = -1
        self.lost = False
        if step > SLICE:
            self._copy = self._piece()  # as it is now
        self.over = not self._left and not self._copy

    @property
    def copied(self) -> bool:
        """Whether the objects that are left are copies."""
        return bool(self._copy)

    def take(self) -> list[object]:
        """Return the next objects, in no order."""
        if not self._copy:
            self._copy = self._piece()
        if len(self._copy) <= SLICE:
            items, self._copy = self._copy, []
        else:
            items = self._copy[-SLICE:]
            del self._copy[-SLICE:]
        self.over = not self._left and not self._copy
        return items

    def _piece(self) -> list[object]:
        count = min(self._step, self._left)
        if self._at < 0:
            begin, items = 0, self._read(0, count)
            self._first = items[0] if items else None
        else:
            begin, items = self._next(count)
        self._anchor = None  # no reference to an object that is returned: the caller counts references
        if len(items) < count or count == self._left:
            self._left = 0
            return items
        references = list(map(getrefcount, items[-_TAIL:]))
        kept = len(items) - _TAIL + references.index(min(references))
        self._anchor, self._at = items[kept], begin + kept
        del items[kept:]
        self._left -= kept
        return items

    def _next(self, count: int) -> tuple[int, list[object]]:
        """Return where the next piece begins, and its objects."""
        for _ in range(_ATTEMPTS):
            found = self._read(self._at, self._at + count)
            if found and found[0] is self._anchor:
                return self._at, found
            begin = max(0, self._at - _NEAR)
            near = list(map(id, self._read(begin, self._at + _NEAR)))
            if id(self._anchor) not in near:
                break
            self._at = begin + near.index(id(self._anchor))
        # The anchor was removed: with everything before it, with everything behind it, or alone.
        front = self._read(0, 1)
        intact = bool(front) and front[0] is self._first
        if intact and not self._read(self._at, self._at + 1):
            return self._at, []  # what is left was counted
        self.lost = True
        begin = self._at if intact else max(0, self._size() - self._left)
        return begin, self._read(begin, begin + count)

"""Sets of bytes of a chunk, as ranges: what is free in it, and what the kernel has given memory for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

__all__ = ["Ranges"]


class Ranges:
    """Disjoint half-open ranges ``[start, end)``, ascending; neighbours are joined."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    @property
    def total(self) -> int:
        """Return how many bytes there are."""
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        """Add a range; what is there already stays."""
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def remove(self, start: int, end: int) -> None:
        """Remove a range; what is not there stays away."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        if first >= last:
            return
        left, right = self._starts[first], self._ends[last - 1]
        rest = [piece for piece in ((left, start), (end, right)) if piece[0] < piece[1]]
        self._starts[first:last] = [piece[0] for piece in rest]
        self._ends[first:last] = [piece[1] for piece in rest]

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return what is there of a range."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        found = zip(self._starts[first:last], self._ends[first:last], strict=True)
        return [(max(start, left), min(end, right)) for left, right in found]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return what is not there of a range."""
        gaps = []
        for left, right in self.within(start, end):
            if start < left:
                gaps.append((start, left))
            start = right
        if start < end:
            gaps.append((start, end))
        return gaps

    def first(self, size: int) -> int | None:
        """Return where the first range of at least ``size`` bytes starts, or None."""
        return next((left for left, right in zip(self._starts, self._ends, strict=True) if right - left >= size), None)

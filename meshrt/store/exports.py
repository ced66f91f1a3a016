"""The bytes of segments that the store of a host sends to stores of other machines, piece by piece.

A piece is read from the chunk when the connection has taken the one before: so a slow reader costs no memory, and the
agent does other work between any two. Pure, except for the reading of the file.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator

from meshrt.store.messages import Piece

__all__ = ["PIECE", "Exports"]

#: Bytes of a piece.
PIECE = 256 << 10


class Exports:
    """The data to send over one connection."""

    def __init__(self) -> None:
        #: Segments, and the ranges of them to send.
        self._left: deque[tuple[int, Iterator[Piece]]] = deque()

    def begin(self, number: int, segment: int, descriptor: int, start: int, size: int) -> None:
        """Send bytes of a file, which stays open until they are sent or given up: their receiver holds them."""
        self._left.append((segment, _pieces(number, descriptor, start, start + size)))

    def cancel(self, segments: Collection[int]) -> None:
        """These are wanted no more."""
        self._left = deque(entry for entry in self._left if entry[0] not in segments)

    def next(self) -> Piece | None:
        """Return the next message; None: nothing is left. Raises OSError where the file cannot be read."""
        while self._left:
            for message in self._left[0][1]:
                return message
            self._left.popleft()
        return None

    def __bool__(self) -> bool:
        return bool(self._left)


def _pieces(number: int, descriptor: int, start: int, end: int) -> Iterator[Piece]:
    while start < end:
        data = os.pread(descriptor, min(PIECE, end - start), start)
        if not data:
            raise OSError("shared memory ends before what was written there")
        start += len(data)
        yield Piece(number, data)

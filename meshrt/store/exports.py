"""The bytes of segments on their way to the store of another machine: pieces, in order, of what is here already."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection

import msgspec

from meshrt.store.messages import Piece

__all__ = ["PIECE", "Exports", "Source"]

#: Bytes of a piece: it is read when the connection has taken the one before, so a slow reader costs no memory.
PIECE = 1 << 20


class Source(msgspec.Struct, eq=False):
    """Where the bytes of a segment are: all of them, or those that have come so far."""

    descriptor: int
    #: Where they begin in the file.
    start: int
    #: How many of them are there.
    size: int


class _Export(msgspec.Struct, eq=False):
    number: int
    segment: int
    source: Source
    #: The next byte to send, and the end.
    position: int
    end: int

    @property
    def ready(self) -> bool:
        return self.position < self.source.size

    def piece(self, buffer: bytearray) -> Piece:
        """Return the next piece, in ``buffer``. Raises OSError."""
        source, start = self.source, self.position
        data = memoryview(buffer)[: min(PIECE, min(source.size, self.end) - start)]
        if os.preadv(source.descriptor, [data], source.start + start) != len(data):
            raise OSError("shared memory is shorter than the data written to it")
        self.position += len(data)
        return Piece(self.number, data)


class Exports:
    """What is sent over one connection. Several segments take turns: one that is still coming here delays no other."""

    def __init__(self) -> None:
        self._left: deque[_Export] = deque()
        #: Of the piece that is sent: a new one would cost page faults.
        self._buffer = bytearray()

    def begin(self, number: int, segment: int, source: Source, start: int, end: int) -> None:
        """Send bytes of a segment. Its file stays open until they are sent or given up: their receiver holds it.

        Args:
            number: That of the question.
            start, end: Which of its bytes.
        """
        if start < end:
            self._left.append(_Export(number, segment, source, start, end))

    def cancel(self, segments: Collection[int]) -> list[int]:
        """These are wanted no more, or come no more. Returns the numbers of the questions."""
        found = [each.number for each in self._left if each.segment in segments]
        self._left = deque(each for each in self._left if each.segment not in segments)
        return found

    def numbers(self) -> list[int]:
        """Return the questions that are not answered in full."""
        return [each.number for each in self._left]

    def has(self, segment: int) -> bool:
        """Whether bytes of a segment are to be sent."""
        return any(each.segment == segment for each in self._left)

    def next(self) -> Piece | None:
        """Return the next piece; None: nothing is there to send. The one before must have been sent.

        Raises:
            OSError: The file cannot be read.
        """
        self._buffer = self._buffer or bytearray(PIECE)
        for _ in range(len(self._left)):
            export = self._left.popleft()
            piece = export.piece(self._buffer) if export.ready else None
            if export.position < export.end:
                self._left.append(export)
            if piece is not None:
                return piece
        return None

    def __bool__(self) -> bool:
        """Whether there is something to send now."""
        return any(each.ready for each in self._left)

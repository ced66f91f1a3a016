"""Bytes on their way to another host: in order, in turns, and none that are not here yet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.store.exports import PIECE, Exports, Source


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """Ten bytes of something else, then a piece and five bytes more."""
    (tmp_path / "file").write_bytes(b"-" * 10 + b"a" * PIECE + b"b" * 5)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    yield Source(descriptor, 10, PIECE + 5)
    os.close(descriptor)


def pieces(exports: Exports) -> list[tuple[int, int, bytes]]:
    """What is sent now: the number of the question, how many bytes, and the first of them."""
    found = []
    while (piece := exports.next()) is not None:
        found.append((piece.id, len(piece.data), bytes(piece.data[:1])))
    return found


def test_pieces_come_in_order_and_in_turns_and_stop_when_they_are_not_wanted(source: Source) -> None:
    exports = Exports()
    exports.begin(1, 9, source, 0, PIECE + 5)
    exports.begin(2, 8, source, 0, 10)
    exports.begin(3, 7, source, PIECE, PIECE + 5)
    assert exports.numbers() == [1, 2, 3] and exports.has(8)
    assert exports.cancel([8]) == [2]
    assert pieces(exports) == [(1, PIECE, b"a"), (3, 5, b"b"), (1, 5, b"b")]
    assert not exports and exports.numbers() == []


def test_what_is_still_coming_delays_no_other(source: Source) -> None:
    coming = Source(source.descriptor, 10, 0)
    exports = Exports()
    exports.begin(1, 9, coming, 0, PIECE + 5)
    assert not exports and pieces(exports) == []
    exports.begin(2, 8, source, PIECE, PIECE + 5)
    assert pieces(exports) == [(2, 5, b"b")]
    coming.size = PIECE
    assert exports and pieces(exports) == [(1, PIECE, b"a")]
    assert exports.numbers() == [1]
    coming.size = PIECE + 5
    assert pieces(exports) == [(1, 5, b"b")]
    assert exports.numbers() == []


def test_a_file_that_is_too_short(source: Source) -> None:
    exports = Exports()
    exports.begin(1, 9, Source(source.descriptor, PIECE, 100), 0, 100)
    with pytest.raises(OSError, match="is shorter than"):
        exports.next()

"""Slice: validation, row-major order, and index and coordinates as inverses."""

from __future__ import annotations

import itertools
import pickle
import time

import pytest
from hypothesis import given

from meshrt.selection import Slice
from tests.strategies import legal_slices

__all__: list[str] = []


def by_hand(ndslice: Slice) -> list[int]:
    """The values in row-major order, from the definition."""
    cells = itertools.product(*(range(size) for size in ndslice.sizes))
    return [ndslice.offset + sum(c * s for c, s in zip(cell, ndslice.strides, strict=True)) for cell in cells]


@given(legal_slices())
def test_values_are_those_of_the_definition(ndslice: Slice) -> None:
    expected = by_hand(ndslice)
    assert list(ndslice) == expected
    assert len(ndslice) == len(expected) == len(set(expected))
    assert [ndslice.get(position) for position in range(len(ndslice))] == expected
    assert [ndslice[position] for position in range(len(ndslice))] == expected
    assert ndslice[1:-1] == tuple(expected[1:-1])
    assert ndslice[::2] == tuple(expected[::2])


@given(legal_slices())
def test_index_and_coordinates_invert(ndslice: Slice) -> None:
    # Slicing makes slices without a plan; both ways to one must agree.
    fresh = pickle.loads(pickle.dumps(ndslice))
    for position, value in enumerate(by_hand(ndslice)):
        assert ndslice.index(value) == fresh.index(value) == position
        assert ndslice.nditem(ndslice.coordinates(value)) == value
        assert value in ndslice


@given(legal_slices())
def test_absent_values_are_refused(ndslice: Slice) -> None:
    present = set(by_hand(ndslice))
    for value in range(-3, max(present, default=0) + 4):
        if value not in present:
            assert value not in ndslice
            with pytest.raises(ValueError, match=f"value {value} is not in"):
                ndslice.index(value)
            with pytest.raises(ValueError, match="is not in"):
                ndslice.coordinates(value)


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((2, 3), (3, 1)),
        ((2, 3), (1, 2)),  # column-major
        ((2, 2), (4, 3)),  # slice(0, 4, 3) of a dense (2, 4): the reference refuses it
        ((3, 3), (2, 3)),  # strides interleave, and yet no value occurs twice
        ((1, 4), (1, 1)),  # what a dimension of size 1 steps by does not matter
        ((1, 2), (0, 5)),
        ((0,), (1,)),
        ((), ()),
    ],
)
def test_legal(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert list(Slice(offset=7, sizes=sizes, strides=strides)) == by_hand(Slice(offset=7, sizes=sizes, strides=strides))


@pytest.mark.parametrize(
    ("offset", "sizes", "strides", "error", "text"),
    [
        (0, (2,), (1, 2), ValueError, "expected one stride for each size"),
        (0, (2,), (0,), ValueError, "same value twice"),
        (0, (2, 2), (1, 1), ValueError, "same value twice"),
        (0, (4, 2), (1, 3), ValueError, "same value twice"),
        (-1, (2,), (1,), ValueError, "offset must not be negative"),
        (0, (-2,), (1,), ValueError, "size must not be negative"),
        (0, (2,), (-1,), ValueError, "stride must not be negative"),
        (0, (2.0,), (1,), TypeError, "size must be an integer, got 2.0"),
        (0, (1 << 20, 3), (2, 3), ValueError, "too many to check"),
        ("0", (2,), (1,), TypeError, "offset must be an integer"),
    ],
)
def test_illegal(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        Slice(offset=offset, sizes=sizes, strides=strides)


def test_access_outside() -> None:
    ndslice = Slice.new_row_major([2, 3])
    with pytest.raises(IndexError, match="position 6"):
        ndslice[6]
    with pytest.raises(TypeError, match="count from 0, got -1"):
        ndslice[-1]
    with pytest.raises(TypeError):
        ndslice["a"]  # type: ignore[call-overload]
    for position in (6, -1):
        with pytest.raises(ValueError, match=f"position {position}"):
            ndslice.get(position)
    for coordinates in ([2, 0], [0, 3], [-1, 0], [1], [1, 2, 0]):
        with pytest.raises(IndexError, match="sizes"):
            ndslice.nditem(coordinates)
    with pytest.raises(TypeError):
        ndslice.index("a")  # type: ignore[arg-type]
    assert "a" not in ndslice
    assert 2.0 not in ndslice


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([3], [(3, 1, 1)]),
        ([5, 1], [(1, 2, 4)]),
        ([1, 2, 4, 5, 6], [(1, 2, 1), (4, 3, 1)]),
        ([1, 5, 6, 7], [(1, 2, 4), (6, 2, 1)]),
        ([1, 3, 5, 6], [(1, 3, 2), (6, 1, 1)]),
        ([3, 3], [(3, 1, 1), (3, 1, 1)]),
        ([1, 1, 2], [(1, 1, 1), (1, 2, 1)]),
    ],
)
def test_from_list(values: list[int], expected: list[tuple[int, int, int]]) -> None:
    made = Slice.from_list(values)
    assert [(part.offset, part.sizes[0], part.strides[0]) for part in made] == expected
    assert sorted(itertools.chain.from_iterable(made)) == sorted(values)


def test_equality_hash_and_pickle() -> None:
    ndslice = Slice(offset=1, sizes=[2, 3], strides=[3, 1])
    assert ndslice == Slice(offset=1, sizes=(2, 3), strides=(3, 1)) != Slice.new_row_major([2, 3])
    assert len({ndslice, pickle.loads(pickle.dumps(ndslice))}) == 1
    assert repr(ndslice) == "Slice(offset=1, sizes=(2, 3), strides=(3, 1))"
    assert ndslice != (1, (2, 3), (3, 1))
    with pytest.raises(AttributeError):
        ndslice.offset = 3  # type: ignore[misc]


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Slice(0, [2], [1])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("ndslice", "expected"),
    [
        (Slice(offset=3, sizes=(), strides=()), range(3, 4)),
        (Slice(offset=3, sizes=(2, 4), strides=(4, 1)), range(3, 11)),
        (Slice(offset=3, sizes=(2, 4), strides=(8, 2)), range(3, 19, 2)),
        (Slice(offset=3, sizes=(1, 4), strides=(9, 1)), range(3, 7)),
        (Slice(offset=3, sizes=(2, 4), strides=(5, 1)), None),
        (Slice(offset=0, sizes=(4, 2), strides=(1, 4)), None),
        (Slice(offset=0, sizes=(3, 3), strides=(2, 3)), None),
    ],
)
def test_as_range(ndslice: Slice, expected: range | None) -> None:
    assert ndslice.as_range() == expected


def test_index_does_not_enumerate() -> None:
    huge = Slice(offset=0, sizes=(1 << 20, 1 << 20), strides=(1 << 21, 2))
    started = time.process_time()
    assert huge.index((5 << 21) + 6) == (5 << 20) + 3
    assert time.process_time() - started < 1

"""Sets of ranks as short text, and equal values folded together."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.selection import Shape, counted, fold_coordinates, fold_ranks, group_by_value, parse, resolve
from tests.strategies import shapes
from tests.support.folded import parse_folded

__all__: list[str] = []

MESH = Shape.from_extent({"hosts": 2, "gpus": 4})


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3, 7], "hosts=*, gpus=3"),
        (range(8), "hosts=*, gpus=*"),
        ([6], "hosts=1, gpus=2"),
        ([5, 6], "hosts=1, gpus=1:3"),
        ([0, 3, 4, 7], "hosts=*, gpus=0:4:3"),
        ([0, 5], "0,5"),
        ([0, 1, 3, 4, 5, 7], "0-1,3-5,7"),
        ([0, 1, 2, 3, 4], "0-4"),
        ([8], "8"),
        ([], ""),
    ],
)
def test_fold_coordinates(ranks: list[int], text: str) -> None:
    assert fold_coordinates(ranks, MESH) == text


def test_fold_coordinates_without_dimensions() -> None:
    assert fold_coordinates([0], Shape.unity()) == "0"


@given(st.data())
def test_folded_coordinates_can_be_typed_back(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    ranks = data.draw(st.sets(st.sampled_from(shape.ranks()), min_size=1))
    text = fold_coordinates(ranks, shape)
    if "=" in text:
        assert resolve(parse(text), shape) == tuple(sorted(ranks))
    else:
        assert parse_folded(text) == tuple(sorted(ranks))


@given(st.data())
def test_every_slice_folds_by_coordinates(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    part = shape
    for label, size in shape.extent.items():
        start = data.draw(st.integers(0, size - 1))
        part = part.select(label, slice(start, size, data.draw(st.integers(1, 4))))
    assert fold_coordinates(part.ranks(), shape).count("=") == len(shape.labels)


class Uncomparable:
    """Like an array: its == gives no truth value, and it cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


SAME = Uncomparable()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        ([(3, "a"), (1, "b"), (0, "a")], [((0, 3), "a"), ((1,), "b")]),
        ([(2, "a"), (1, "b")], [((1,), "b"), ((2,), "a")]),
        ([(0, 1), (1, True), (2, 1.0), (3, 1)], [((0, 3), 1), ((1,), True), ((2,), 1.0)]),
        ([(0, [1]), (1, [1]), (2, [2]), (3, (1,))], [((0, 1), [1]), ((2,), [2]), ((3,), (1,))]),
        ([(0, SAME), (1, SAME)], [((0, 1), SAME)]),
    ],
)
def test_group_by_value(pairs: list[tuple[int, Any]], expected: list[tuple[tuple[int, ...], Any]]) -> None:
    groups = group_by_value(pairs)
    assert [ranks for ranks, _ in groups] == [ranks for ranks, _ in expected]
    for (_, value), (_, wanted) in zip(groups, expected, strict=True):
        assert type(value) is type(wanted)
        assert value is wanted or value == wanted


def test_group_by_value_folds_nan_and_keeps_uncomparable_apart() -> None:
    groups = group_by_value([(0, float("nan")), (1, 0.5), (2, float("nan"))])
    assert [ranks for ranks, _ in groups] == [(0, 2), (1,)]
    assert [ranks for ranks, _ in group_by_value([(1, Uncomparable()), (0, Uncomparable())])] == [(0,), (1,)]


def test_thousands_of_ranks_fold_at_once() -> None:
    mesh = Shape.from_extent({"hosts": 1024, "gpus": 8})
    scattered = [rank for rank in range(8192) if rank % 7 and rank % 5]
    started = time.process_time()
    assert parse_folded(fold_ranks(scattered)) == tuple(scattered)
    assert fold_coordinates(range(3, 8192, 8), mesh) == "hosts=*, gpus=3"
    assert len(group_by_value((rank, rank % 3) for rank in range(8192))) == 3
    assert time.process_time() - started < 2


def test_numbers_of_things() -> None:
    assert (counted(0), counted(1), counted(2, "more line")) == ("0 ranks", "1 rank", "2 more lines")

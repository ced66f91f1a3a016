"""Shape: smaller shapes of it, points of base ranks, and the wire form."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.selection import Extent, Shape, Slice
from tests.strategies import shapes

__all__: list[str] = []

SHAPE = Shape.from_extent({"hosts": 2, "gpus": 4})
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(), lambda s: st.lists(s, max_size=4)
)


def parts(shape: Shape) -> tuple[Any, ...]:
    return shape.labels, shape.ndslice.offset, shape.ndslice.sizes, shape.ndslice.strides


def test_facts() -> None:
    assert parts(SHAPE) == (("hosts", "gpus"), 0, (2, 4), (4, 1))
    assert SHAPE.extent == Extent(["hosts", "gpus"], [2, 4])
    assert SHAPE.ranks() == list(range(8))
    assert len(SHAPE) == 8
    assert str(SHAPE) == "{hosts=2,gpus=4}"
    assert repr(SHAPE) == "Shape(('hosts', 'gpus'), Slice(offset=0, sizes=(2, 4), strides=(4, 1)))"
    assert Shape(labels=["hosts", "gpus"], slice=Slice.new_row_major([2, 4])) == SHAPE


def test_unity() -> None:
    assert Shape.unity().ranks() == [0]
    assert str(Shape.unity()) == "{}"
    assert len(Shape.unity()) == 1


def test_at_select_and_index() -> None:
    assert parts(SHAPE.at("hosts", 1)) == (("gpus",), 4, (4,), (1,))
    assert parts(SHAPE.at("hosts", True)) == (("gpus",), 4, (4,), (1,))
    assert parts(SHAPE.index(gpus=3, hosts=1)) == ((), 7, (), ())
    assert SHAPE.index() == SHAPE
    assert parts(SHAPE.select("hosts", slice(0, 1))) == (("hosts", "gpus"), 0, (1, 4), (4, 1))
    assert parts(SHAPE.select("hosts", slice(0, 2, 2))) == (("hosts", "gpus"), 0, (1, 4), (8, 1))
    assert parts(SHAPE.select("gpus", slice(-1, None))) == (("hosts", "gpus"), 3, (2, 1), (4, 1))
    assert parts(SHAPE.select("gpus", slice(0, 4, 3))) == (("hosts", "gpus"), 0, (2, 2), (4, 3))
    odd = SHAPE.select("gpus", slice(1, None, 2))
    assert odd.ranks() == [1, 3, 5, 7]
    assert odd.at("gpus", 1).ranks() == [3, 7], "indices are relative to the shape"
    assert Shape.from_extent({"self": 2}).index(self=1).ranks() == [1]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: SHAPE.at("foo", 0), ValueError, "no dimension 'foo' in {hosts=2,gpus=4}"),
        (lambda: SHAPE.at("hosts", 5), ValueError, "hosts=5 is out of range: hosts has size 2"),
        (lambda: SHAPE.at("hosts", -1), ValueError, "hosts=-1 is out of range"),
        (lambda: SHAPE.at("hosts", 1.0), TypeError, "the index of dimension 'hosts' must be an integer"),  # type: ignore[arg-type]
        (lambda: SHAPE.index(hosts=1, gpus=4), ValueError, "gpus=4"),
        (lambda: SHAPE.index(gpus=2, c=1), ValueError, "'c'"),
        (lambda: SHAPE.select("foo", slice(1)), ValueError, "'foo'"),
        (lambda: SHAPE.select("gpus", slice(2, 2)), ValueError, "empty range"),
        (lambda: SHAPE.select("gpus", slice(4, 8)), ValueError, "dimension 'gpus' of size 4"),
        (lambda: SHAPE.select("gpus", slice(0, 2, 0)), ValueError, "step cannot be zero"),
        (lambda: SHAPE.select("gpus", slice(None, None, -1)), ValueError, "must be positive"),
        (lambda: SHAPE.select("gpus", slice("a")), TypeError, "must be integers"),
        (lambda: SHAPE.select("gpus", 1), TypeError, "needs a slice"),  # type: ignore[arg-type]
        (lambda: SHAPE.coordinates(8), ValueError, "value 8 is not in"),
        (lambda: SHAPE.coordinates(-1), ValueError, "value -1"),
        (lambda: SHAPE.coordinates("x"), TypeError, "integer"),  # type: ignore[arg-type]
        (lambda: SHAPE.point(8), ValueError, "value 8"),
        (lambda: Shape(["a"], SHAPE.ndslice), ValueError, "expected one label for each dimension"),
        (lambda: Shape(["a", "a"], SHAPE.ndslice), ValueError, "Duplicate dimension name 'a'"),
        (lambda: Shape(["a", "b c"], SHAPE.ndslice), ValueError, "'b c'"),
        (lambda: Shape("ab", SHAPE.ndslice), TypeError, "sequence of names"),
        (lambda: Shape([], 3), TypeError, "Slice"),  # type: ignore[arg-type]
    ],
)
def test_refused(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@given(shapes())
def test_points_and_coordinates_of_base_ranks(shape: Shape) -> None:
    cells = itertools.product(*(range(size) for size in shape.ndslice.sizes))
    for position, (rank, cell) in enumerate(zip(shape.ranks(), cells, strict=True)):
        point = shape.point(rank)
        assert point.rank == position
        assert tuple(point.values()) == cell
        assert shape.coordinates(rank) == dict(point)
        assert shape.index(**point).ranks() == [rank]


@given(shapes())
def test_hash_pickle_and_wire(shape: Shape) -> None:
    copies = {shape, pickle.loads(pickle.dumps(shape)), Shape.from_wire(shape.to_wire())}
    assert copies == {shape}
    assert Shape.from_wire(tuple(shape.to_wire())).ranks() == shape.ranks()


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        ["hosts", 0, [2], [1]],
        [["hosts"], 0, [2]],
        [["hosts"], 0, [2], [1], 0],
        [["hosts"], 0, [2], [1, 1]],
        [["hosts", "gpus"], 0, [2], [1]],
        [["a b"], 0, [2], [1]],
        [["a", "a"], 0, [2, 2], [2, 1]],
        [[b"a"], 0, [2], [1]],
        [["a"], 0, [True], [1]],
        [["a"], 0, [2.0], [1]],
        [["a"], 0, [2], [-1]],
        [["a"], -1, [2], [1]],
        [["a"], 1 << 70, [2], [1]],
        [["a"], 0, [2], [0]],
        [["a"], 0, "22", [1]],
        [["a"], 0, [1 << 40], [1]],
        [["a", "b"], 0, [1 << 20, 1 << 20], [1 << 20, 1]],
    ],
)
def test_foreign_wire_is_refused(wire: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        Shape.from_wire(wire)


@given(st.tuples(ANYTHING, ANYTHING, ANYTHING, ANYTHING) | ANYTHING)
def test_any_foreign_wire_gives_a_shape_or_a_value_error(wire: object) -> None:
    try:
        shape = Shape.from_wire(wire)
    except ValueError:
        return
    assert Shape.from_wire(shape.to_wire()) == shape

"""select: a selection as a part of a mesh."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.errors import SelectionError
from meshrt.selection import Shape, resolve, select
from meshrt.selection.views import slice_shape
from tests.strategies import selections, shapes
from tests.support.selection_text import format_selection

__all__: list[str] = []

MESH = Shape.from_extent({"hosts": 2, "gpus": 4})


@pytest.mark.parametrize(
    ("text", "selectors"),
    [
        ("hosts=1", {"hosts": 1}),
        ("hosts=-1", {"hosts": 1}),
        ("hosts=(1)", {"hosts": 1}),
        ("hosts=1:2", {"hosts": slice(1, 2)}),
        ("gpus=3, hosts=1", {"gpus": 3, "hosts": 1}),
        ("gpus=::2 & hosts=0", {"gpus": slice(0, 4, 2), "hosts": 0}),
        ("gpus=0:1:3", {"gpus": slice(0, 1, 3)}),
        ("gpus=-3:", {"gpus": slice(1, 4)}),
        ("gpus=(1,3)", {"gpus": slice(1, 4, 2)}),
        ("gpus=(3,0)", {"gpus": slice(0, 4, 3)}),
        ("gpus=(-1,2,2,3)", {"gpus": slice(2, 4)}),
        ("gpus=(2,2)", {"gpus": slice(2, 3)}),
        ("gpus=(0,1:3)", {"gpus": slice(0, 3)}),
        ("gpus=*", {}),
        ("all", {}),
        ("all & hosts=1", {"hosts": 1}),
    ],
)
def test_dims_give_what_slice_gives(text: str, selectors: dict[str, object]) -> None:
    assert select(MESH, text) == slice_shape(MESH, selectors)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("3", [3]),
        (":", list(range(8))),
        ("1,4,7", [1, 4, 7]),
        ("7,4,1", [1, 4, 7]),
        ("!hosts=1", [0, 1, 2, 3]),
        ("hosts=0 | hosts=1", list(range(8))),
        ("hosts=1, hosts=0:2", [4, 5, 6, 7]),
        ("hosts=0, gpus=(0,1,3) & (0,3)", [0, 3]),
    ],
)
def test_others_give_one_dimension(text: str, ranks: list[int]) -> None:
    made = select(MESH, text)
    assert made.labels == ("ranks",)
    assert made.ranks() == ranks
    assert made.ndslice.strides == (ranks[1] - ranks[0] if len(ranks) > 1 else 1,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0,2,3,6", "ranks 0,2-3,6 are not a block"),
        ("0,1,3", "ranks 0-1,3 are not a block of a mesh: they are not evenly spaced"),
        ("gpus=(0,1,3)", "ranks 0-1,3-5,7 are not a block"),
        ("hosts=0, hosts=1", "selects no rank"),
        ("gpus=2:1", "selects no rank"),
        ("gpus=(2:1,3:3)", "selects no rank"),
        ("gpus=4", "gpus=4 does not exist"),
        ("gpus=(1,4)", "gpus=4 does not exist"),
        ("foo=1", "no dimension 'foo'"),
        ("stopped", "not known here"),
        ("gpus=", "ends too early"),
    ],
)
def test_refused(text: str, problem: str) -> None:
    with pytest.raises(SelectionError) as caught:
        select(MESH, text)
    assert problem in caught.value.problem


def test_what_to_do_about_scattered_ranks() -> None:
    with pytest.raises(SelectionError, match="expected several selections, one for each block"):
        select(MESH, "0,1,3")


@pytest.mark.slow
@given(st.data())
def test_the_ranks_are_those_of_resolve(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    selection = data.draw(selections(shape))
    text = format_selection(selection)
    try:
        expected = resolve(selection, shape)
    except SelectionError:
        with pytest.raises(SelectionError):
            select(shape, text)
        return
    try:
        made = select(shape, text)
    except SelectionError:
        steps = {right - left for left, right in itertools.pairwise(expected)}
        assert len(steps) > 1, "evenly spaced ranks are a block"
    else:
        assert sorted(made.ranks()) == list(expected)

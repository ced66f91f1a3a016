"""Hypothesis strategies for the values of meshrt."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from meshrt.selection import Extent, Selection, Shape, Slice
from meshrt.selection.grammar.ast import (
    STATE_WORDS,
    All,
    Dim,
    Group,
    Index,
    Item,
    Node,
    Not,
    Place,
    Range,
    RankSet,
    State,
    conjunction,
    disjunction,
)

__all__ = ["LABELS", "extents", "legal_slices", "selections", "shapes", "views"]

LABELS = ("hosts", "gpus", "pp", "stopped", "é1")


@st.composite
def extents(draw: st.DrawFn, *, max_size: int = 5) -> Extent:
    """Extents of up to four dimensions, each of at least one element."""
    labels = draw(st.lists(st.sampled_from(LABELS), max_size=4, unique=True))
    return Extent(labels, [draw(st.integers(1, max_size)) for _ in labels])


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Dense shapes at any offset, of which some dimensions may be cut by ranges, so that strides interleave."""
    extent = draw(extents())
    dense = Slice.new_row_major(extent.sizes)
    shape = Shape(extent.labels, Slice(offset=draw(st.integers(0, 9)), sizes=dense.sizes, strides=dense.strides))
    return draw(views(shape, indices=False))


@st.composite
def views(draw: st.DrawFn, shape: Shape, *, indices: bool = True) -> Shape:
    """Parts of ``shape``: each dimension whole, cut by a range, or (with ``indices``) fixed."""
    for label, size in shape.extent.items():
        how = draw(st.sampled_from(("whole", "range", "index") if indices else ("whole", "range")))
        if how == "index":
            shape = shape.at(label, draw(st.integers(0, size - 1)))
        elif how == "range":
            start = draw(st.integers(0, size - 1))
            shape = shape.select(label, slice(start, draw(st.integers(start + 1, size)), draw(st.integers(1, 4))))
    return shape


@st.composite
def legal_slices(draw: st.DrawFn) -> Slice:
    """Slices with any sizes and strides of which no value occurs twice, those that need a table included."""
    sizes = draw(st.lists(st.integers(0, 4), max_size=3))
    strides = [draw(st.integers(0, 12)) for _ in sizes]
    try:
        return Slice(offset=draw(st.integers(0, 20)), sizes=sizes, strides=strides)
    except ValueError:
        return Slice.new_row_major(sizes)


def selections(shape: Shape | None = None, numbers: int | None = None) -> st.SearchStrategy[Selection]:
    """Selections. With a shape, dims and indices exist in it, and rank numbers are below ``numbers``; else anything."""
    if shape is None:
        dims = [_dim(st.text("abcAé_", min_size=1, max_size=3), st.integers(-(10**9), 10**9))]
        rank = st.integers(-(10**17), 10**17)
    else:
        dims = [_dim(st.just(label), st.integers(-size, size - 1)) for label, size in shape.extent.items()]
        count = len(shape) if numbers is None else numbers
        rank = st.integers(-count, count - 1)
    leaves: list[st.SearchStrategy[Node]] = [
        st.builds(All),
        st.builds(RankSet, _items(rank)),
        st.builds(Group, st.sampled_from(("dp", "expert-group", "in", "group_3", "all"))),
        st.builds(State, st.sampled_from(STATE_WORDS)),
        st.builds(Place, st.text(min_size=1, max_size=6) | st.text('a". ,(:-', min_size=1), st.integers(1, 999)),
        *dims,
    ]
    return st.builds(Selection, st.recursive(st.one_of(leaves), _branches, max_leaves=6))


def _branches(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several: st.SearchStrategy[Sequence[Node]] = st.lists(nodes, min_size=2, max_size=3)
    return st.one_of(st.builds(Not, nodes), several.map(conjunction), several.map(disjunction))


def _dim(names: st.SearchStrategy[str], index: st.SearchStrategy[int]) -> st.SearchStrategy[Node]:
    return st.builds(Dim, names, _items(index))


def _items(index: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[Item, ...]]:
    bound = st.none() | st.integers(-12, 12)
    step = st.none() | st.integers(1, 4)
    item: st.SearchStrategy[Item] = st.builds(Index, index) | st.builds(Range, bound, bound, step)
    return st.lists(item, min_size=1, max_size=3).map(tuple)

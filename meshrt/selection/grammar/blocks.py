"""A selection as one strided block, which is what a mesh can be narrowed to."""

from __future__ import annotations

from meshrt.ranks import fold_ranks
from meshrt.selection.folding import spacing
from meshrt.selection.grammar.ast import All, And, Dim, Node, Selection
from meshrt.selection.grammar.complaints import complain
from meshrt.selection.grammar.parser import parse
from meshrt.selection.grammar.resolver import pick, resolve, selector_of
from meshrt.selection.shape import Shape
from meshrt.selection.slices import Slice
from meshrt.selection.views import slice_shape

__all__ = ["select"]


def select(shape: Shape, text: str) -> Shape:
    """Return the part of ``shape`` that ``text`` denotes.

    Args:
        shape: Sizes ``(d0, ..., dk)``.
        text: A selection. Rank numbers are positions in ``shape``. Dims joined by commas or &, each with an index, a
            range or an evenly spaced list, give what ``slice_shape`` gives; ``all`` gives ``shape`` itself.
    Returns:
        For those the sliced shape, for others one dimension ``ranks``, ascending.
    Raises:
        SelectionError: As ``parse`` and ``resolve``; also when the ranks are not evenly spaced.
    """
    selection = parse(text)
    selectors = _selectors(selection, shape)
    if selectors is not None:
        return slice_shape(shape, selectors)
    ranks = resolve(selection, shape)
    step = spacing(ranks)
    if step is None:
        problem = f"ranks {fold_ranks(ranks)} are not a block of a mesh: they are not evenly spaced"
        raise complain(problem, selection.text, selection.expr.span, ("several selections, one for each block",))
    return Shape(("ranks",), Slice(offset=ranks[0], sizes=(len(ranks),), strides=(step,)))


def _selectors(selection: Selection, shape: Shape) -> dict[str, int | slice] | None:
    """Return the selection as arguments of ``slice_shape``, or None when it is something else or empty."""
    expr = selection.expr
    operands: tuple[Node, ...] = expr.operands if isinstance(expr, And) else (expr,)
    selectors: dict[str, int | slice] = {}
    for operand in operands:
        if isinstance(operand, All):
            continue
        if not isinstance(operand, Dim) or operand.name in selectors or operand.name not in shape.labels:
            return None
        selector = _selector(operand, shape, selection.text)
        if selector is None:
            return None
        selectors[operand.name] = selector
    return selectors


def _selector(dim: Dim, shape: Shape, text: str) -> int | slice | None:
    if len(dim.items) == 1:
        return selector_of(shape, dim.name, dim.items[0], text)
    line = Shape.from_extent({dim.name: shape.extent[dim.name]})
    indices = sorted(pick(line, dim.name, dim.items, text))
    step = spacing(indices)
    return None if step is None else slice(indices[0], indices[-1] + 1, step)

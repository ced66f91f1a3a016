"""Sets of ranks: shapes and what can be done with them, and a text grammar on top.

Lower floor: ``Slice``, ``Extent``, ``Point``, ``Shape``, ``MeshTrait``. Upper floor: ``parse``, ``resolve``, ``select``
and ``format_selection`` (see ``docs/grammar.md``), and ``fold_*`` to print sets. Pure: no I/O, no runtime, no state, so
everything here may be called from any thread.
"""

from __future__ import annotations

from meshrt.selection.ast import STATE_WORDS, Selection
from meshrt.selection.blocks import select
from meshrt.selection.extent import Extent, Point
from meshrt.selection.folding import fold_coordinates, fold_ranks, group_by_value, parse_folded
from meshrt.selection.format import format_selection
from meshrt.selection.parser import parse, parse_prefix
from meshrt.selection.resolver import RankFacts, resolve
from meshrt.selection.shape import Shape
from meshrt.selection.slices import Slice
from meshrt.selection.trait import MeshTrait

__all__ = [
    "STATE_WORDS",
    "Extent",
    "MeshTrait",
    "Point",
    "RankFacts",
    "Selection",
    "Shape",
    "Slice",
    "fold_coordinates",
    "fold_ranks",
    "format_selection",
    "group_by_value",
    "parse",
    "parse_folded",
    "parse_prefix",
    "resolve",
    "select",
]

"""Sets of ranks: shapes and what can be done with them, and a text grammar on top.

Lower floor: ``Slice``, ``Extent``, ``Point``, ``Shape``, ``MeshTrait``, and ``fold_*`` to print sets. Upper floor,
`meshrt.selection.grammar`: ``parse``, ``resolve`` and ``select`` (see ``docs/grammar.md``). It is loaded when first
used: a rank seldom needs it. Pure: no I/O, no runtime, so everything may be called from any thread.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from meshrt.ranks import fold_ranks
from meshrt.selection.extent import Extent, Point
from meshrt.selection.folding import counted, fold_coordinates, group_by_value
from meshrt.selection.shape import Shape
from meshrt.selection.slices import Slice
from meshrt.selection.trait import MeshTrait

if TYPE_CHECKING:
    from meshrt.selection.grammar import (
        STATE_WORDS,
        RankFacts,
        Selection,
        check_numbers,
        complain,
        dimensions_of,
        names_states,
        near_miss,
        parse,
        parse_prefix,
        resolve,
        select,
    )

__all__ = [
    "STATE_WORDS",
    "Extent",
    "MeshTrait",
    "Point",
    "RankFacts",
    "Selection",
    "Shape",
    "Slice",
    "check_numbers",
    "complain",
    "counted",
    "dimensions_of",
    "fold_coordinates",
    "fold_ranks",
    "group_by_value",
    "names_states",
    "near_miss",
    "parse",
    "parse_prefix",
    "resolve",
    "select",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'meshrt.selection' has no attribute {name!r}")
    return getattr(importlib.import_module("meshrt.selection.grammar"), name)

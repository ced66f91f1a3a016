"""The upper floor: sets of ranks as text. Parsed to a small tree, which is evaluated by slicing shapes."""

from __future__ import annotations

from meshrt.selection.grammar.ast import STATE_WORDS, Selection
from meshrt.selection.grammar.blocks import select
from meshrt.selection.grammar.complaints import complain, near_miss
from meshrt.selection.grammar.parser import parse, parse_prefix
from meshrt.selection.grammar.resolver import RankFacts, check_numbers, dimensions_of, names_states, resolve

__all__ = [
    "STATE_WORDS",
    "RankFacts",
    "Selection",
    "check_numbers",
    "complain",
    "dimensions_of",
    "names_states",
    "near_miss",
    "parse",
    "parse_prefix",
    "resolve",
    "select",
]

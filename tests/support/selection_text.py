"""A selection as text, for tests that parse it: ``parse(format_selection(selection)) == selection``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from meshrt.selection.grammar.ast import (
    All,
    And,
    Dim,
    Group,
    Index,
    Item,
    Node,
    Not,
    Or,
    Place,
    Range,
    RankSet,
    Selection,
    State,
)

__all__ = ["format_selection"]

_BARE_FILE = re.compile(r"[\w./\\-]+")

# The place of a node decides whether it needs parentheses: nowhere special, beside |, beside &, or behind !.
_OPEN, _IN_OR, _IN_AND, _IN_NOT = range(4)


def format_selection(selection: Selection) -> str:
    """Return the selection as ``ranks(...)``."""
    return f"ranks({_format(selection.expr, _OPEN)})"


def _format(node: Node, where: int) -> str:
    match node:
        case RankSet(items):
            return _wrap(_items(items), len(items) > 1 and where > _OPEN)
        case Dim(name, items):
            return f"{name}={_wrap(_items(items), len(items) > 1)}"
        case All():
            return "all"
        case State(word):
            return word
        case Place(file, line):
            return f"at {_file(file)}:{line}"
        case Group(name):
            return f"in {name}"
        case Not(operand):
            return "!" + _format(operand, _IN_NOT)
        case And(operands):
            if where == _OPEN and all(isinstance(operand, Dim) for operand in operands):
                return ", ".join(_format(operand, _OPEN) for operand in operands)
            return _wrap(" & ".join(_format(operand, _IN_AND) for operand in operands), where > _IN_OR)
        case Or(operands):
            return _wrap(" | ".join(_format(operand, _IN_OR) for operand in operands), where > _OPEN)


def _wrap(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def _items(items: Sequence[Item]) -> str:
    return ",".join(_item(item) for item in items)


def _item(item: Item) -> str:
    match item:
        case Index(value):
            return str(value)
        case Range(start, stop, step):
            bounds = ["" if bound is None else str(bound) for bound in (start, stop)]
            return ":".join(bounds if step is None else [*bounds, str(step)])


def _file(file: str) -> str:
    return file if _BARE_FILE.fullmatch(file) else '"' + file.replace('"', '""') + '"'

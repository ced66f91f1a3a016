"""The tree of a parsed selection: small immutable nodes, each with the span of text that it came from.

Spans and the text do not take part in ``==``. ``conjunction`` and ``disjunction`` keep trees in one form: no ``And``
directly below an ``And``, no ``Or`` directly below an ``Or``, and each has at least two operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "STATE_WORDS",
    "All",
    "And",
    "Dim",
    "Group",
    "Index",
    "Item",
    "Node",
    "Not",
    "Or",
    "Place",
    "Range",
    "RankSet",
    "Selection",
    "Span",
    "State",
    "conjunction",
    "disjunction",
]

STATE_WORDS = ("running", "idle", "stopped", "post-mortem", "blocked", "dead", "not-answering")

Span = tuple[int, int]  # (start, end) offsets in the parsed text


@dataclass(frozen=True, slots=True)
class _Spanned:
    span: Span = field(default=(0, 0), compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Index(_Spanned):
    """One number: a rank, or an index in a dimension; a negative one counts from the end."""

    value: int


@dataclass(frozen=True, slots=True)
class Range(_Spanned):
    """``start:stop:step`` as in Python; a None is a part that was left out. The step is positive."""

    start: int | None = None
    stop: int | None = None
    step: int | None = None


Item = Index | Range


@dataclass(frozen=True, slots=True)
class RankSet(_Spanned):
    """Rank numbers and ranges: any of them."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Dim(_Spanned):
    """The ranks whose coordinate in ``name`` is any of ``items``."""

    name: str
    items: tuple[Item, ...]
    name_span: Span = field(default=(0, 0), compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class All(_Spanned):
    """Every rank."""


@dataclass(frozen=True, slots=True)
class State(_Spanned):
    """The ranks in a state: one of ``STATE_WORDS``."""

    word: str


@dataclass(frozen=True, slots=True)
class Place(_Spanned):
    """The ranks that are at ``file:line``."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Group(_Spanned):
    """The members of the process groups that are called ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Not(_Spanned):
    """The ranks that ``operand`` leaves out."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And(_Spanned):
    """The ranks that all operands have in common."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or(_Spanned):
    """The ranks of any operand."""

    operands: tuple[Node, ...]


Node = RankSet | Dim | All | State | Place | Group | Not | And | Or


@dataclass(frozen=True, slots=True)
class Selection:
    """A parsed selection. ``text`` is all that was given to the parser; spans are offsets in it."""

    expr: Node
    text: str = field(default="", compare=False)


def conjunction(operands: Sequence[Node]) -> Node:
    """Return what all ``operands`` (one or more) have in common."""
    return _joined(And, operands)


def disjunction(operands: Sequence[Node]) -> Node:
    """Return what is in any of ``operands`` (one or more)."""
    return _joined(Or, operands)


def _joined(kind: type[And | Or], operands: Sequence[Node]) -> Node:
    flat: list[Node] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, kind) else (operand,)
    return flat[0] if len(flat) == 1 else kind(tuple(flat), span=(flat[0].span[0], flat[-1].span[1]))

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
class Index:
    """One number: a rank, or an index in a dimension; a negative one counts from the end."""

    value: int
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Range:
    """``start:stop:step`` as in Python; a None is a part that was left out. The step is positive."""

    start: int | None = None
    stop: int | None = None
    step: int | None = None
    span: Span = field(default=(0, 0), compare=False)


Item = Index | Range


@dataclass(frozen=True, slots=True)
class RankSet:
    """Rank numbers and ranges: any of them."""

    items: tuple[Item, ...]
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Dim:
    """The ranks whose coordinate in ``name`` is any of ``items``."""

    name: str
    items: tuple[Item, ...]
    span: Span = field(default=(0, 0), compare=False)
    name_span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class All:
    """Every rank."""

    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class State:
    """The ranks in a state: one of ``STATE_WORDS``."""

    word: str
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Place:
    """The ranks that are at ``file:line``."""

    file: str
    line: int
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Group:
    """The members of the process groups that are called ``name``."""

    name: str
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The ranks that ``operand`` leaves out."""

    operand: Node
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """The ranks that all operands have in common."""

    operands: tuple[Node, ...]
    span: Span = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """The ranks of any operand."""

    operands: tuple[Node, ...]
    span: Span = field(default=(0, 0), compare=False)


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
    return flat[0] if len(flat) == 1 else kind(tuple(flat), (flat[0].span[0], flat[-1].span[1]))

"""From a parsed selection to base ranks. Dims are sliced by the code that slices meshes; the rest is set algebra."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from meshrt.errors import SelectionError
from meshrt.ranks import fold_ranks
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
    Span,
    State,
)
from meshrt.selection.grammar.complaints import complain, near_miss
from meshrt.selection.shape import Shape
from meshrt.selection.views import slice_shape

__all__ = ["RankFacts", "check_numbers", "dimensions_of", "pick", "resolve", "selector_of"]


class RankFacts(Protocol):
    """The known facts about the ranks of a running mesh. Answers are base ranks; those of other meshes are ignored."""

    def in_state(self, word: str, /) -> Iterable[int]:
        """Return the ranks in the state ``word``, one of ``STATE_WORDS``."""
        ...

    def at(self, file: str, line: int, /) -> Iterable[int]:
        """Return the ranks that are at ``file:line``; ``file`` is as the user typed it."""
        ...

    def groups(self) -> Mapping[str, Collection[int]]:
        """Return the members of process groups, by the name of the groups."""
        ...


def resolve(
    selection: Selection,
    shape: Shape,
    *,
    numbering: Shape | None = None,
    facts: RankFacts | None = None,
    allow_empty: bool = False,
) -> tuple[int, ...]:
    """Return the base ranks that ``selection`` denotes inside ``shape``.

    Args:
        selection: Parsed expression; a negative number counts from the end, bounds of ranges clamp as Python's do.
        shape: The view: where dims are looked up, and what the result is confined to. Sizes ``(d0, ..., dk)``.
        numbering: What plain rank numbers are positions in, row-major; ``shape`` when left out. Dims that ``shape``
            does not have are looked up here too, so that the names before a rename or a slice keep working.
        facts: The source of states and places.
        allow_empty: Return ``()`` instead of raising when no rank is left.
    Returns:
        Ranks, ascending, unique; length ``1 <= n <= prod(sizes)``, or 0 with ``allow_empty``.
    Raises:
        SelectionError: A number is outside its dimension or mesh, a dimension, a state or a place is unknown, or no
            rank is selected. ``.span`` points at the part of ``selection.text``.
    Source: docs/grammar.md; row-major order and slices as in MeshTrait.slice.
    """
    resolver = _Resolver(selection.text, shape, shape if numbering is None else numbering, facts)
    found = resolver.ranks_of(selection.expr)
    inside = found & resolver.view
    if not inside and not allow_empty:
        raise _nothing(selection, shape, found)
    return tuple(sorted(inside))


def check_numbers(selection: Selection, numbering: Shape, members: Container[int], whose: str) -> None:
    """Raise SelectionError if ``selection`` names a rank by its number, and that is none of ``members``.

    Args:
        numbering: As in `resolve`, which has accepted the selection.
        members: Base ranks.
        whose: The members in words, for the message.
    """
    ranks = numbering.ranks()
    for node in _leaves(selection):
        for item in node.items if isinstance(node, RankSet) else ():
            if isinstance(item, Index) and ranks[item.value] not in members:
                raise complain(f"rank {ranks[item.value]} is not a rank of {whose}", selection.text, item.span)


def dimensions_of(selection: Selection) -> frozenset[str]:
    """Return the labels of the dims that ``selection`` names; none if it goes by rank numbers and facts alone."""
    return frozenset(node.name for node in _leaves(selection) if isinstance(node, Dim))


def names_states(selection: Selection) -> bool:
    """Whether ``selection`` depends on what ranks do: on their states, or on where they are."""
    return any(isinstance(node, State | Place) for node in _leaves(selection))


def _leaves(selection: Selection) -> Iterator[Node]:
    nodes = [selection.expr]
    while nodes:
        match nodes.pop():
            case Not(operand):
                nodes.append(operand)
            case And(operands) | Or(operands):
                nodes += operands
            case leaf:
                yield leaf


class _Resolver:
    """One resolution: the shapes and facts that every node is evaluated with."""

    def __init__(self, text: str, shape: Shape, numbering: Shape, facts: RankFacts | None) -> None:
        self._text = text
        self._shape = shape
        self._numbering = numbering
        self._facts = facts
        self.view = frozenset(shape.ndslice)

    def ranks_of(self, node: Node) -> frozenset[int]:
        """Return the base ranks of ``node``; those outside the view are still among them."""
        match node:
            case All():
                return self.view
            case RankSet(items):
                return self._numbered(items)
            case Dim(name, items, name_span=name_span):
                return frozenset(pick(self._home_of(name, name_span), name, items, self._text))
            case State(word, span=span):
                return frozenset(self._known(f"which ranks are {word!r}", span).in_state(word))
            case Place(file, line, span=span):
                return frozenset(self._known(f"which ranks are at {file}:{line}", span).at(file, line))
            case Group(name, span=span):
                return self._members(name, span)
            case Not(operand):
                return self.view - self.ranks_of(operand)
            case And(operands):
                return frozenset.intersection(*map(self.ranks_of, operands))
            case Or(operands):
                return frozenset.union(*map(self.ranks_of, operands))

    def _members(self, name: str, span: Span) -> frozenset[int]:
        groups = self._known(f"which ranks are in {name}", span).groups()
        if name not in groups:
            problem = f"no process group {name!r}{near_miss(name, groups)}"
            raise complain(problem, self._text, span, list(groups) or ["no rank has reported a process group"])
        return frozenset(groups[name])

    def _numbered(self, items: Sequence[Item]) -> frozenset[int]:
        ranks = self._numbering.ranks()
        positions = Shape.from_extent({"rank": len(ranks)})
        return frozenset(ranks[position] for position in pick(positions, "rank", items, self._text))

    def _home_of(self, name: str, span: Span) -> Shape:
        for shape in (self._shape, self._numbering):
            if name in shape.labels:
                return shape
        labels = dict.fromkeys((*self._shape.labels, *self._numbering.labels))
        problem = f"no dimension {name!r} in {self._shape}{near_miss(name, labels)}"
        sizes = {**self._numbering.extent, **self._shape.extent}
        expected = [f"{label} (size {sizes[label]})" for label in labels]
        raise complain(problem, self._text, span, expected or ["a rank number"])

    def _known(self, what: str, span: Span) -> RankFacts:
        if self._facts is None:
            expected = ("rank numbers", "dimensions such as hosts=0")
            raise complain(
                f"{what} is not known here: only a running mesh has this information", self._text, span, expected
            )
        return self._facts


def pick(shape: Shape, label: str, items: Iterable[Item], text: str) -> set[int]:
    """Return the base ranks of ``shape`` whose index in ``label`` is any of ``items``; SelectionError if outside."""
    picked: set[int] = set()
    for item in items:
        selector = selector_of(shape, label, item, text)
        if selector is not None:
            picked.update(slice_shape(shape, {label: selector}).ndslice)
    return picked


def selector_of(shape: Shape, label: str, item: Item, text: str) -> int | slice | None:
    """Return what ``item`` is as an argument of ``MeshTrait.slice``, or None when it is a range without any index."""
    size = shape.extent[label]
    match item:
        case Index(value, span=span):
            if not -size <= value < size:
                problem = f"{label} {value} does not exist" if label == "rank" else f"{label}={value} does not exist"
                raise complain(f"{problem}: {_sizes(label, size)}", text, span, _accepted(size))
            return value + size if value < 0 else value
        case Range(start, stop, step):
            selector = slice(start, stop, step)
            return selector if range(size)[selector] else None


def _sizes(label: str, size: int) -> str:
    ranks = "there is only one" if size == 1 else f"there are {size} ranks"
    return ranks if label == "rank" else f"{label} has size {size}"


def _accepted(size: int) -> tuple[str, ...]:
    if size == 1:
        return ("0",)
    return (f"0 to {size - 1}", f"-{size} to -1 to count from the end") if size else ()


def _nothing(selection: Selection, shape: Shape, found: Iterable[int]) -> SelectionError:
    outside = fold_ranks(found)
    why = f": {shape} does not contain {outside}" if outside else f" of {shape}"
    return complain(f"this selects no rank{why}", selection.text, selection.expr.span)

"""Sets of ranks by their dimensions, in few characters: ``hosts=*, gpus=3``; and equal answers folded together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from meshrt.ranks import fold_ranks
from meshrt.selection.shape import Shape

__all__ = ["counted", "fold_coordinates", "group_by_value", "spacing"]

T = TypeVar("T")


def counted(count: int, what: str = "rank") -> str:
    """Return a number of things: ``"1 rank"``, ``"2 ranks"``."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def fold_coordinates(ranks: Iterable[int], shape: Shape) -> str:
    """Return base ``ranks`` by the dims of ``shape``, as in ``"hosts=*, gpus=0:2"``; else as ``fold_ranks`` does.

    The first form is used when the ranks are a slice of the shape. It is in the grammar, so it can be typed back.
    """
    members = set(ranks)
    by_dims = _by_dims(members, shape)
    return fold_ranks(members) if by_dims is None else by_dims


def group_by_value(pairs: Iterable[tuple[int, T]]) -> list[tuple[tuple[int, ...], T]]:
    """Return ``(ranks, value)`` for each distinct value: the largest group first, then that of the lowest rank.

    Values are equal when their types are the same and ``==`` says so, or when both are NaN; 1 and True differ. Values
    that cannot be hashed are compared with each other one by one.
    """
    hashed: dict[object, tuple[set[int], T]] = {}
    others: list[tuple[set[int], T]] = []
    for rank, value in pairs:
        group = _group_of(value, hashed, others)
        group.add(rank)
    groups = [(tuple(sorted(ranks)), value) for ranks, value in (*hashed.values(), *others)]
    return sorted(groups, key=lambda group: (-len(group[0]), group[0][0]))


def spacing(ordered: Sequence[int]) -> int | None:
    """Return the step between ascending numbers where it is the same everywhere (1 for a lone one), else None."""
    if len(ordered) < 2:
        return 1 if ordered else None
    step = ordered[1] - ordered[0]
    even = range(ordered[0], ordered[-1] + 1, step)
    return step if len(even) == len(ordered) and list(even) == list(ordered) else None


def _by_dims(members: set[int], shape: Shape) -> str | None:
    if not members or not shape.labels:
        return None
    found: list[set[int]] = [set() for _ in shape.labels]
    for rank in members:
        try:
            coordinates = shape.ndslice.coordinates(rank)
        except ValueError:
            return None
        for indices, coordinate in zip(found, coordinates, strict=True):
            indices.add(coordinate)
    if math.prod(map(len, found)) != len(members):
        return None
    cells = []
    for label, size, indices in zip(shape.labels, shape.ndslice.sizes, found, strict=True):
        cell = _cell(sorted(indices), size)
        if cell is None:
            return None
        cells.append(f"{label}={cell}")
    return ", ".join(cells)


def _cell(indices: Sequence[int], size: int) -> str | None:
    step = spacing(indices)
    if step is None:
        return None
    if len(indices) == 1:
        return str(indices[0])
    if len(indices) == size:
        return "*"
    return f"{indices[0]}:{indices[-1] + 1}" + (f":{step}" if step > 1 else "")


def _group_of(value: T, hashed: dict[object, tuple[set[int], T]], others: list[tuple[set[int], T]]) -> set[int]:
    key: object = (type(value), "nan" if isinstance(value, float) and value != value else value)
    try:
        return hashed.setdefault(key, (set(), value))[0]
    except TypeError:
        pass  # the value cannot be hashed
    for ranks, known in others:
        if type(known) is type(value) and _equal(known, value):
            return ranks
    others.append((set(), value))
    return others[-1][0]


def _equal(left: object, right: object) -> bool:
    try:
        return left is right or bool(left == right)
    except Exception:  # the == of foreign types may refuse, as that of arrays does; then they count as different
        return False

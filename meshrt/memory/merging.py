"""The variables of many ranks as one list: a variable is one row, and ranks with the same answer share an entry."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

import msgspec

from meshrt.hooks.facts import Answered
from meshrt.memory.operations import Heap, LeftOut, SizeRow, VariableRow, Variables

__all__ = ["Merged", "Name", "folded", "likely", "merged_alone", "name_of"]

#: Bytes that a list, or a number, of more than a few items takes beyond an empty one.
_SLACK = 8

Name = tuple[str, str, str, str, str]
"""What identifies a variable: mesh id, actor, kind, where, type."""


def name_of(row: VariableRow) -> Name:
    """Return the name of a variable."""
    return row.mesh_id, row.actor, row.kind, row.where, row.type


def likely(row: VariableRow) -> int:
    """Return the bytes of a variable on the rank that holds most of it, on all devices; estimated if possible."""
    return max(size.likely for size in row.sizes)


def folded(sizes: Iterable[tuple[Name, SizeRow]]) -> list[VariableRow]:
    """Return the rows of sizes on ranks, the largest variable first: equal sizes of a variable share an entry."""
    rows: dict[Name, dict[bytes, tuple[SizeRow, list[int]]]] = {}
    for name, size in sizes:
        known = rows.setdefault(name, {})
        same = msgspec.json.encode(msgspec.structs.replace(size, ranks=()))
        known.setdefault(same, (size, []))[1].extend(size.ranks)
    found = [_row(name, known.values()) for name, known in rows.items()]
    found.sort(key=_order)
    return found


def _row(name: Name, sizes: Iterable[tuple[SizeRow, list[int]]]) -> VariableRow:
    found = [msgspec.structs.replace(size, ranks=sorted(ranks)) for size, ranks in sizes]
    found.sort(key=lambda size: (-len(size.ranks), size.ranks))
    mesh_id, actor, kind, where, type_name = name
    return VariableRow(mesh_id=mesh_id, actor=actor, kind=kind, where=where, type=type_name, sizes=found)


def _order(row: VariableRow) -> tuple[int, list[tuple[int, str]]]:
    """Return the sort key of rows: the largest first, equal ones in natural order of their names."""
    words = re.split(r"(\d+)", row.where)
    return -likely(row), [(int(word), "") if index % 2 else (0, word) for index, word in enumerate(words)]


class Merged:
    """The answers of ranks to `MeasureVariables`."""

    def __init__(self) -> None:
        self._sizes: list[tuple[Name, SizeRow]] = []
        #: The answer of each rank.
        self.of_rank: dict[tuple[str, int], Variables] = {}

    def add(self, group: Answered[Variables, Heap]) -> None:
        """Add the ranks of one group, which gave the same answer."""
        for row in group.same.rows:
            name = (group.mesh_id, row.actor, row.kind, row.where, row.type)
            self._sizes += [(name, msgspec.structs.replace(size, ranks=group.ranks)) for size in row.sizes]
        for rank in group.ranks:
            self.of_rank[group.mesh_id, rank] = group.same

    def rows(self, budget: int) -> tuple[list[VariableRow], LeftOut]:
        """Return the rows that fit into ``budget`` bytes of a message, and those that are left out.

        The bytes of what is left out are those of the rank that holds most.
        """
        rows = folded(self._sizes)
        for number, row in enumerate(rows):
            budget -= len(msgspec.msgpack.encode(row)) + _SLACK
            if budget < 0:
                return rows[:number], _left_out(rows[number:])
        return rows, _left_out(())


def merged_alone(mesh_id: str, rank: int, told: Variables) -> list[VariableRow]:
    """Return the rows of the answer of a single rank."""
    merged = Merged()
    merged.add(Answered(mesh_id, (rank,), told, {}))
    return merged.rows(sys.maxsize)[0]


def _left_out(rows: Sequence[VariableRow]) -> LeftOut:
    exact = all(size.exact for row in rows for size in row.sizes)
    return LeftOut(len(rows), sum(max(size.held for size in row.sizes) for row in rows), exact)

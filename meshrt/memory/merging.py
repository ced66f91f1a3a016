"""The variables of many ranks as one list: a variable is one row, and ranks with the same answer share an entry.

A row: ``{"mesh_id", "actor", "kind", "where", "type", "sizes"}``, the largest first. ``sizes``: the answers of ranks
(`meshrt.memory.rows`), each with ``"ranks"``, the ranks that gave it; the answer of the most ranks first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from meshrt.hooks.facts import Group

__all__ = ["Merged", "counted", "largest", "merged_alone", "order"]

_NAME = ("actor", "kind", "where", "type")
#: Bytes that a list, or a number, of more than a few items takes beyond an empty one.
_SLACK = 8


def largest(row: dict[str, Any]) -> int:
    """Return the bytes of a variable on the rank that holds most of it, on all devices; estimated if possible."""
    sizes: list[dict[str, Any]] = row["sizes"]
    return max(
        int(max(size["bytes"], size.get("estimate") or 0) + sum(size.get("devices", {}).values())) for size in sizes
    )


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of rows: the largest first, equal ones in natural order of their names."""
    words = re.split(r"(\d+)", row["where"])
    return -largest(row), [(int(word), "") if index % 2 else (0, word) for index, word in enumerate(words)]


class Merged:
    """The answers of ranks to ``memory.variables``."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], dict[bytes, dict[str, Any]]] = {}
        #: The sums that each rank returned: ``{"unique", "mapped", "total", "exact", "left_out"}``.
        self.of_rank: dict[tuple[str, int], dict[str, Any]] = {}

    def add(self, group: Group) -> None:
        """Add the ranks of one group, which gave the same answer."""
        for row in group.same["rows"]:
            name = (group.mesh_id, *(row[word] for word in _NAME))
            size = {word: value for word, value in row.items() if word not in _NAME}
            known = self._rows.setdefault(name, {})
            entry = known.setdefault(msgpack.packb(size), {"ranks": [], **size})
            entry["ranks"].extend(group.ranks)
        said = {word: value for word, value in group.same.items() if word != "rows"}
        for rank in group.ranks:
            self.of_rank[group.mesh_id, rank] = said

    def rows(self, budget: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the rows that fit into ``budget`` bytes of msgpack, and a summary of the rows that are left out.

        The summary is ``{"count", "bytes", "exact"}``, with the bytes of the rank that holds most.
        """
        rows = []
        for name, sizes in self._rows.items():
            row: dict[str, Any] = dict(zip(("mesh_id", *_NAME), name, strict=True))
            row["sizes"] = sorted(sizes.values(), key=lambda size: (-len(size["ranks"]), size["ranks"]))
            for size in row["sizes"]:
                size["ranks"].sort()
            rows.append(row)
        rows.sort(key=order)
        for number, row in enumerate(rows):
            budget -= len(msgpack.packb(row)) + _SLACK
            if budget < 0:
                return rows[:number], _left_out(rows[number:])
        return rows, _left_out(())


def merged_alone(mesh_id: str, rank: int, said: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the answer of a single rank."""
    merged = Merged()
    merged.add(Group(mesh_id, (rank,), "answered", said, {}))
    return merged.rows(sys.maxsize)[0]


def _left_out(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    exact = all(size["exact"] for row in rows for size in row["sizes"])
    return {"count": len(rows), "bytes": sum(max(map(counted, row["sizes"])) for row in rows), "exact": exact}


def counted(size: Mapping[str, Any]) -> int:
    """Return the bytes of a variable that were counted, on all devices: not an estimate."""
    return int(size["bytes"]) + int(sum((size.get("devices") or {}).values()))

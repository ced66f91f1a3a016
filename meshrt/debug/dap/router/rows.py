"""The threads that an IDE shows if there are too many ranks for a row each: a row for each class of equal stacks.

Pure: the places of ranks come in, rows go out. A row keeps its number as long as there is a rank in its class.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from meshrt.debug.dap.router.ranks import Key, Names
from meshrt.selection import fold_ranks

__all__ = ["RUNNING", "SILENT", "Place", "Row", "Rows"]

#: (file, line, function) of each stack frame, the outermost first. `RUNNING`: not stopped. `SILENT`: no answer.
Place = tuple[tuple[str, int, str], ...]
RUNNING: Place = ()
SILENT: Place = (("", -1, ""),)


@dataclass(frozen=True, slots=True)
class Row:
    """A class of ranks with equal stacks."""

    number: int
    place: Place
    #: The first rank answers for all.
    members: tuple[Key, ...]
    name: str

    @property
    def stopped(self) -> bool:
        """Whether its ranks are stopped."""
        return self.place not in (RUNNING, SILENT)


class Rows:
    """The rows of one session.

    Args:
        names: How ranks are called.
        first: The first number of a row.
    """

    def __init__(self, names: Names, first: int) -> None:
        self._names = names
        self._numbers = itertools.count(first)
        self._known: dict[tuple[str, Place], int] = {}

    def sort(self, places: Mapping[Key, Place]) -> list[Row]:
        """Return the rows, stopped ones first, then by size with the largest class first.

        Args:
            places: The place of each rank, by mesh id and base rank.
        """
        classes: dict[tuple[str, Place], list[Key]] = {}
        for key, place in places.items():
            classes.setdefault((key[0], place), []).append(key)
        self._known = {key: self._known.get(key) or next(self._numbers) for key in classes}
        rows = [
            Row(
                self._known[key],
                key[1],
                tuple(sorted(members)),
                self._name(key[0], key[1], [rank for _, rank in members]),
            )
            for key, members in classes.items()
        ]
        return sorted(rows, key=lambda row: (not row.stopped, row.place == SILENT, -len(row.members), row.name))

    def _name(self, mesh: str, place: Place, ranks: list[int]) -> str:
        count = f"{len(ranks)} ranks" if len(ranks) > 1 else "rank"
        if place == SILENT:
            where = "do not answer" if len(ranks) > 1 else "does not answer"
        elif place == RUNNING:
            where = "running"
        else:
            where = f"at {place[-1][0].rpartition('/')[2]}:{place[-1][1]} ({place[-1][2]})"
        return f"{self._names.mesh(mesh)}{count} {fold_ranks(sorted(ranks))} {where}"

"""Ranks that are looked at all together, and what is known of each before it is asked. On the root's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshrt.errors import UsageError
from meshrt.hooks.facts import Measured
from meshrt.inspect.faults import silence

__all__ = ["Chosen", "Doing", "packed"]

#: Rows of one answer: a control message holds 1 MiB.
_MOST = 4000
#: Of these ranks no answer will come.
_SILENT = ("dead", "not-answering")


@dataclass(frozen=True, slots=True)
class Doing:
    """What a rank does: a word of the grammar, since when (epoch seconds), where it stands, and what else is known."""

    word: str
    since: float = 0.0
    place: str = ""
    note: str = ""

    @property
    def silent(self) -> bool:
        """Whether no answer will come."""
        return self.word in _SILENT

    def measured(self, facts: Mapping[str, Any], host: str, measured: Measured) -> Doing:
        """Return the same, as it is if the agent of its host has not answered: whatever the rank does, nobody knows.

        Args:
            facts: What that agent has told of the rank.
        """
        if facts or host not in measured.silent or self.word == "dead":
            return self
        return replace(self, word="not-answering", note=silence("host"))


@dataclass(frozen=True, slots=True)
class Chosen:
    """Ranks.

    Attributes:
        targets: Base ranks, by mesh id.
        doing: What is known of a rank that nobody has asked.

    Raises:
        UsageError: They are more than one answer holds.
    """

    targets: Mapping[str, Sequence[int]]
    doing: Callable[[str, int], Doing]

    def __post_init__(self) -> None:
        count = sum(map(len, self.targets.values()))
        if count > _MOST:
            raise UsageError(f"{count} ranks are too many for one answer; choose up to {_MOST} with ranks(...)")

    def answering(self) -> dict[str, list[int]]:
        """Return those of which nothing is known that would keep them from answering."""
        found = {
            mesh_id: [rank for rank in ranks if not self.doing(mesh_id, rank).silent]
            for mesh_id, ranks in self.targets.items()
        }
        return {mesh_id: ranks for mesh_id, ranks in found.items() if ranks}


def packed(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Return ``{"columns", "ranks"}``: rows as lists, null where something is not known. Names travel once."""
    return {"columns": list(columns), "ranks": [[row.get(name) for name in columns] for row in rows]}

"""Why ranks do not answer, where it is known: what the waits of those lead to, as it is kept in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshrt.failure.record import Plain
from meshrt.inspect.standstill import CYCLE, STOPPED, Standstill

__all__ = ["Hang", "hang_of"]

#: How sure that is, by what it is.
_SURE = {
    CYCLE: "certain: each of them waits for the next one",
    STOPPED: "until somebody continues it",
}


@dataclass(frozen=True, slots=True)
class Hang(Plain):
    """What keeps ranks that have not answered.

    Attributes:
        kind: As of `meshrt.inspect.standstill.Standstill`; "": it is not known.
        text: The same in words.
        ranks: Who wait for each other, or are stopped, by mesh id.
        reached: These, those that have not answered, and whoever waits in between, by mesh id.
        stacks: Where all of these stood (`meshrt.inspect.plain`).
    """

    kind: str = ""
    text: str = ""
    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    reached: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stacks: dict[str, Any] = field(default_factory=dict)

    @property
    def certainty(self) -> str:
        """How sure it is, in words."""
        return _SURE.get(self.kind, "")

    def keeps(self, mesh_id: str, rank: int) -> bool:
        """Whether a rank is one of those that keep the others."""
        return rank in self.ranks.get(mesh_id, ())

    def reaches(self, mesh_id: str, rank: int) -> bool:
        """Whether a rank waits in it, or keeps the others."""
        return rank in self.reached.get(mesh_id, ())

    def first(self, mesh_id: str) -> int:
        """Return the rank to look at first, of this mesh if one of it keeps the others; -1 if there is none."""
        return next(iter(self.ranks.get(mesh_id) or next(iter(self.ranks.values()), ())), -1)

    def to_json(self) -> dict[str, Any]:
        """Return what programs are told of it: without the stacks."""
        return {"kind": self.kind, "text": self.text, "ranks": self.ranks, "reached": self.reached}


def hang_of(found: Standstill | None, stacks: Mapping[str, Any]) -> Hang:
    """Return what is to be kept of a standstill, with the merged stacks of those that it reaches."""
    if found is None:
        return Hang()
    return Hang(found.kind, found.text, dict(found.ranks), dict(found.reached), dict(stacks))

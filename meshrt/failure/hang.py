"""Why ranks do not answer, if it is known: the end of their chain of waits, as kept in the file."""

from __future__ import annotations

import msgspec

from meshrt.failure.record import Document, Plain
from meshrt.inspect.merged import NO_STACKS, MergedStacks
from meshrt.inspect.standstill import CYCLE, LATE, MISMATCH, OWES, STOPPED, Standstill

__all__ = ["Hang", "hang_of"]

#: How sure the cause is, by its kind.
_SURE = {
    CYCLE: "certain: each of these ranks waits for the next one",
    MISMATCH: "certain: a collective ends when all ranks of its group are in the same one",
    LATE: "certain: a collective ends when all ranks of its group are in it",
    STOPPED: "until a user continues it",
    OWES: "likely: all ranks that have not answered the script wait for this one, which does not wait itself",
}


class Hang(Plain, frozen=True):
    """What blocks ranks that have not answered.

    Attributes:
        kind: As in `meshrt.inspect.standstill.Standstill`; "": not known.
        text: The same in words.
        ranks: Ranks that wait for each other, or are stopped, by mesh id.
        reached: These ranks, those that have not answered, and the ranks that wait in between, by mesh id.
        stacks: The stacks of all of these.
    """

    kind: str = ""
    text: str = ""
    ranks: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    reached: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    stacks: MergedStacks = NO_STACKS

    @property
    def certainty(self) -> str:
        """How sure the cause is, in words."""
        return _SURE.get(self.kind, "")

    def keeps(self, mesh_id: str, rank: int) -> bool:
        """Whether a rank is one of those that block the others."""
        return rank in self.ranks.get(mesh_id, ())

    def reaches(self, mesh_id: str, rank: int) -> bool:
        """Whether a rank waits in this hang, or blocks the others."""
        return rank in self.reached.get(mesh_id, ())

    def first(self, mesh_id: str) -> int:
        """Return the rank of this mesh to look at first, if one of its ranks blocks the others; -1 otherwise."""
        return next(iter(self.ranks.get(mesh_id) or next(iter(self.ranks.values()), ())), -1)

    def to_json(self) -> Document:
        """Return the facts for programs: without the stacks."""
        return {"kind": self.kind, "text": self.text, "ranks": self.ranks, "reached": self.reached}


def hang_of(found: Standstill, stacks: MergedStacks) -> Hang:
    """Return a standstill as a `Hang`, with the merged stacks of the ranks that it reaches."""
    return Hang(found.kind, found.text, dict(found.ranks), dict(found.reached), stacks)

"""What a rank tells of its process groups (docs/json.md has what is shown of it)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from meshrt.hooks.operations import Data, Report

__all__ = ["GroupFacts", "GroupsMade", "WorldFacts", "members_of"]


class GroupFacts(Data, frozen=True, omit_defaults=True):
    """A process group of a rank.

    Attributes:
        key: Tells groups apart: torch's own name of it.
        name: As a user types it: its description, such as ``"dp"``, or ``"group_3"``.
        ranks: Its members by their rank in the job, as ``"0-3,8,16-31:2"``.
        entered: The number of the last collective that this rank has entered; collectives of a group count from 1.
        number: Of the oldest collective that has not ended here; 0: none is known.
        operation: Its name, ``"all_reduce"``.
        sizes: Of its tensors, ``"[4, 8]"``; "": not known.
        seconds: For how long this rank has been in it.
        unsure: The numbers are those of a counter that also counts point-to-point operations.
    """

    key: str
    name: str
    ranks: str
    entered: int = 0
    number: int = 0
    operation: str = ""
    sizes: str = ""
    seconds: float = 0.0
    unsure: bool = False

    @property
    def collective(self) -> str:
        """The oldest collective that has not ended, as ``"all_reduce #12 of dp"``."""
        return f"{self.operation} #{self.number} of {self.name}"


class WorldFacts(Data, frozen=True, omit_defaults=True):
    """The process groups of a rank.

    Attributes:
        rank: Of this process in the job, as torch counts.
        groups: Those that it is a member of.
        actor: The actor that is blocked in a collective; "": none is.
        blocked: Index of the group of that collective.
        store: By what its members have found each other, a port or file: ranks of a mesh may be in several worlds,
            each of which counts its ranks and groups from 0. "": not known.
        last: Index of the group whose collective this thread has entered last; -1: not known.
    """

    rank: int
    groups: Sequence[GroupFacts]
    actor: str = ""
    blocked: int = 0
    store: str = ""
    last: int = -1

    def later(self, seconds: float) -> WorldFacts:
        """Return the facts as they are ``seconds`` later, if nothing has ended."""
        groups = [replace(group, seconds=group.seconds + seconds) if group.number else group for group in self.groups]
        return replace(self, groups=groups)


class GroupsMade(Report, frozen=True, tag="inspect.groups"):
    """The names of the process groups that a rank is a member of. Always all of them."""

    names: Sequence[str]


def members_of(ranks: str) -> Iterator[int]:
    """Return the ranks of a text of `meshrt.ranks.fold_ranks`, such as ``"0-3,8,16-31:2"``."""
    for part in ranks.split(","):
        run, _, step = part.partition(":")
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))

"""Ranks as an IDE may attach to them, and how a person is told of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meshrt.hooks import Body
from meshrt.selection import fold_ranks

__all__ = ["Key", "Lives", "Rank", "counted", "named"]

#: Mesh id and base rank. A pid would be that of other ranks on other hosts, too.
Key = tuple[str, int]


def named(ranks: Iterable[int]) -> str:
    """Return ``"rank 3"`` or ``"ranks 0-3"``."""
    found = sorted(ranks)
    return f"rank{'s' if len(found) > 1 else ''} {fold_ranks(found)}"


def counted(count: int) -> str:
    """Return ``"1 rank"`` or ``"4 ranks"``."""
    return f"{count} rank{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank that an IDE may attach to."""

    mesh: str
    rank: int
    #: ``hosts=0,gpus=3 (rank 3)``
    name: str
    pid: int
    host: str
    #: What has it already, in words; "": no IDE.
    ide: str = ""
    #: How often it was started again.
    life: int = 0

    @property
    def key(self) -> Key:
        """Mesh id and base rank."""
        return self.mesh, self.rank

    @classmethod
    def from_wire(cls, body: Body) -> Rank:
        """Read what the root tells."""
        return cls(
            str(body["mesh"]),
            int(body["rank"]),
            str(body["name"]),
            int(body["pid"]),
            str(body["host"]),
            str(body.get("ide", "")),
            int(body.get("life", 0)),
        )


class Lives:
    """The lives of ranks that a session has met: it hears of each more than once."""

    def __init__(self) -> None:
        self._met: dict[Key, int] = {}

    def new(self, rank: Rank) -> bool:
        """Whether a rank is met for the first time since it was born."""
        if self._met.get(rank.key) == rank.life:
            return False
        self._met[rank.key] = rank.life
        return True

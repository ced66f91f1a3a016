"""Lines of ranks as they are shown: who has written each, equal lines of several ranks once. Pure.

::

    [trainer hosts=0,gpus=1] text    one rank
    [trainer 0-63] text              several, by their numbers, as in ``meshrt logs``

The lines of each rank keep their order: a line is put together with an equal one only if that stands behind all earlier
lines of its rank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from meshrt.mesh.shown import Shown
from meshrt.selection import fold_ranks

__all__ = ["Folded", "RankLines", "folded"]

#: Bytes of memory that a line costs beside its text.
_COST = 100


class RankLines(NamedTuple):
    """Lines of one rank, on their way to the terminal.

    Attributes:
        mesh, rank: Whose.
        err: They are for standard error.
        lines: Each with the actor that has printed it, or the mesh.
        coords: ``"hosts=0,gpus=1"``; "" where there are no dimensions.
        shown: The setting that holds for the mesh.
        scope: What has this setting: the id of the mesh, or "" for the program.
        at: When they have come; monotonic seconds.
        prefixed: Whether it is shown who has written them. If not, equal lines are not shown as one: their number would
            be lost.
        wait: Seconds that they may wait for equal lines.
    """

    mesh: str
    rank: int
    err: bool
    lines: Sequence[tuple[str, str]]
    coords: str
    shown: Shown
    scope: str
    at: float
    prefixed: bool = True
    wait: float = 0.0

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return sum(len(label) + len(line) + _COST for label, line in self.lines)

    @property
    def due(self) -> float:
        """When they are to be shown; monotonic seconds."""
        return self.at + self.wait


class Folded:
    """A line to be shown, and the ranks that have written it."""

    __slots__ = ("label", "line", "of", "ranks")

    def __init__(self, of: RankLines, label: str, line: str) -> None:
        self.of = of
        self.label = label
        self.line = line
        self.ranks = [of.rank]

    def __str__(self) -> str:
        if not self.of.prefixed:
            return self.line
        where = self.of.coords if len(self.ranks) == 1 else fold_ranks(self.ranks)
        return f"[{' '.join(filter(None, (self.label, where)))}] {self.line}"


def folded(parts: Iterable[RankLines]) -> list[Folded]:
    """Return what is to be shown of some lines, in order."""
    found: list[Folded] = []
    #: Where equal lines are in it, ascending; and where the last line of each rank is.
    places: dict[tuple[str, bool, str, str], list[int]] = {}
    last: dict[tuple[str, int], int] = {}
    for part in parts:
        who = (part.mesh, part.rank)
        folds = part.prefixed and part.wait > 0
        for label, line in part.lines:
            equal = places.setdefault((part.mesh, part.err, label, line), []) if folds else []
            behind = bisect_right(equal, last.get(who, -1))
            if behind < len(equal):
                last[who] = equal[behind]
                found[equal[behind]].ranks.append(part.rank)
            else:
                last[who] = len(found)
                equal.append(len(found))
                found.append(Folded(part, label, line))
    return found

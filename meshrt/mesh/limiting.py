"""At most so many lines of ranks a second on the terminal, and how many were left out. One thread."""

from __future__ import annotations

from meshrt.mesh.folding import Folded
from meshrt.selection import counted

__all__ = ["LineLimit"]

#: Seconds of one count.
_SPAN = 1.0


class _Count:
    """The lines of one second."""

    __slots__ = ("begun", "left_out", "shown")

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.shown = 0
        self.left_out = 0


class LineLimit:
    """Counts per setting: that of the program, and those of meshes that have their own.

    Args:
        where: The command that shows the files.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._counts: dict[str, _Count] = {}

    def admits(self, line: Folded, now: float) -> bool:
        """Whether a line may be shown; it is counted. Call `left_out` first."""
        limit = line.of.shown.limit
        if not limit:
            return True
        count = self._counts.setdefault(line.of.scope, _Count(now))
        if count.shown < limit:
            count.shown += 1
            return True
        count.left_out += len(line.ranks)
        return False

    @property
    def due(self) -> float | None:
        """When lines that were left out are to be told of; None: there are none."""
        return min((count.begun + _SPAN for count in self._counts.values() if count.left_out), default=None)

    def left_out(self, now: float, *, end: bool = False) -> list[str]:
        """Return what is to be said of the seconds that are over; ``end``: of all."""
        over = [scope for scope, count in self._counts.items() if end or now >= count.begun + _SPAN]
        counts = [self._counts.pop(scope).left_out for scope in over]
        return [
            f"meshrt: ... {counted(count, 'line')} left out; they are in the files ({self._where})"
            for count in counts
            if count
        ]

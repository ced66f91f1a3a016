"""Calls that the end of a mesh has cut off: those that still ran when the grace was over, and those not begun."""

from __future__ import annotations

from collections.abc import Iterable

from meshrt.selection import counted, fold_ranks
from meshrt.wire.operations import CutOff

__all__ = ["CutWork"]

#: Lines about calls; the others are counted.
_LINES = 8
#: Characters of a name that a rank has sent.
_NAME = 100


class CutWork:
    """The work of one mesh that was cut off. On the root's loop, unless said otherwise.

    Args:
        mesh: Its name.
        script: It runs a script, which makes no calls.
    """

    def __init__(self, mesh: str, *, script: bool = False) -> None:
        self._mesh = mesh
        self._script = script
        #: The ranks on which a call was interrupted, by its actor and endpoint.
        self._calls: dict[tuple[str, str], set[int]] = {}
        #: How many calls had not begun, by rank; and the ranks with more than these.
        self._waiting: dict[int, int] = {}
        self._more: set[int] = set()
        self._told: set[int] = set()
        self._killed: set[int] = set()

    def told(self, rank: int, report: CutOff) -> None:
        """A rank reports what it does at the end of the grace, once: later reports are dropped."""
        if rank in self._told:
            return
        self._told.add(rank)
        for actor, endpoint in report.calls:
            self._calls.setdefault((actor[:_NAME], endpoint[:_NAME]), set()).add(rank)
        if report.waiting:
            self._waiting[rank] = report.waiting
        if report.more:
            self._more.add(rank)

    def more(self, ranks: Iterable[int]) -> None:
        """These ranks are to be stopped before all that was sent to them has left this process. Any thread."""
        self._more.update(ranks)

    def killed(self, rank: int) -> None:
        """A rank had to be killed."""
        self._killed.add(rank)

    def text(self, grace: float, at_exit: bool) -> str:
        """Return what was cut off, in lines; "" if nothing was.

        Args:
            grace: Seconds that the mesh had.
            at_exit: By the end of the program, not by ``stop()`` or the end of a block.
        """
        lines = [
            (f"{actor}.{endpoint}() " if actor else f"at exit: {endpoint} ") + self._on(ranks)
            for (actor, endpoint), ranks in self._calls.items()
        ]
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [counted(len(lines) - _LINES + 1, "more endpoint")]
        if self._waiting:
            count, least = sum(self._waiting.values()), "at least " if self._more & self._waiting.keys() else ""
            calls = (
                "1 call that had not started, sent to" if count == 1 else f"{count} calls that had not started, sent to"
            )
            lines.append(f"{least}{calls} {_ranks(self._waiting)}")
        named = set().union(*self._calls.values())
        if rest := self._killed - named:
            lines.append(f"{_ranks(rest)}: killed without an answer; the process was stopped, or C code held its GIL")
        if not lines:
            return ""
        when = "the end of the program" if at_exit else "its stop()"
        head = f"unfinished work of {self._mesh} was terminated {grace:g} s after {when}"
        if not self._script:
            lines.append(
                "to let calls finish: wait for them with get(), or give the mesh more time with stop(grace=SECONDS)"
            )
        return "\n  ".join([head, *lines])

    def _on(self, ranks: set[int]) -> str:
        killed = ranks & self._killed
        return f"on {_ranks(ranks)}" + (f" ({_ranks(killed)} killed: the interrupt had no effect)" if killed else "")


def _ranks(ranks: Iterable[int]) -> str:
    ranks = set(ranks)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}"

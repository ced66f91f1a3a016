"""What the user is told once for all ranks: how they have ended, and which expressions of breakpoints raise.

One cause often ends many ranks. An expression that raises is told in full first, and then how often.

::

    heard --a moment: of all ranks--> told in full --heard again, after 1, 2, 4, ... 60 s--> told how often, and by whom
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from meshrt.debug.dap.operations import Raising
from meshrt.debug.dap.router.ranks import Names, Rank

__all__ = ["Ends", "Raisings"]

#: Writes a text on the debug console, in a category of DAP. An IDE shows "important" ones wherever the user looks.
Say = Callable[[str, str], None]

#: Seconds in which ranks are gathered; until it is told how often an expression has raised, at first and at most.
_WAVE = 0.1
_AGAIN = 1.0
_AGAIN_MAX = 60.0

#: The name of each kind, and the first text for the user.
_NAMED = {
    "condition": "the condition of the breakpoint",
    "hits": "the hit count of the breakpoint",
    "log": "the log point",
}
_FIRST = {
    "condition": "raises an exception and counts as false ({expression})",
    "hits": "raises an exception and counts as false ({expression})",
    "log": "prints nothing because it raises an exception",
}


class Ends:
    """The ends of ranks in one session. On the router's loop."""

    def __init__(self, say: Say, names: Names) -> None:
        self._say = say
        self._names = names
        #: The ranks whose end is not told yet, by the reason.
        self._untold: dict[str, list[Rank]] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, rank: Rank, why: str) -> None:
        """A rank has ended, or cannot be reached any more."""
        if self._closed:
            return
        self._untold.setdefault(why, []).append(rank)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_WAVE, self._tell)

    def close(self) -> None:
        """Stop telling, as the session is over."""
        self._closed = True
        if self._telling is not None:
            self._telling.cancel()

    def _tell(self) -> None:
        self._telling = None
        untold, self._untold = self._untold, {}
        for why, ranks in untold.items():
            whose = ranks[0].name if len(ranks) == 1 else self._names.of(rank.key for rank in ranks)
            self._say(f"meshrt: {whose}: {why}", "important")


@dataclass(slots=True, eq=False)
class _Kind:
    """One expression, and one type of error."""

    said: Raising
    ranks: dict[tuple[str, int], Rank] = field(default_factory=dict)
    times: int = 0
    told: bool = False
    pause: float = _WAVE
    telling: asyncio.TimerHandle | None = None


class Raisings:
    """The raising expressions of one session. On the router's loop."""

    def __init__(self, say: Say, names: Names) -> None:
        self._say = say
        self._names = names
        self._kinds: dict[tuple[str, str, int, str, str], _Kind] = {}

    def add(self, rank: Rank, rows: Iterable[Raising]) -> None:
        """Take what has raised in a rank (`Raised`)."""
        for row in rows:
            kind = self._kinds.setdefault(row.kind, _Kind(row))
            kind.ranks[rank.key] = rank
            kind.times += row.times
            if kind.telling is None:
                kind.telling = asyncio.get_running_loop().call_later(kind.pause, self._tell, kind)

    def close(self) -> None:
        """Stop telling, as the session is over."""
        for kind in self._kinds.values():
            if kind.telling is not None:
                kind.telling.cancel()

    def _tell(self, kind: _Kind) -> None:
        kind.telling = None
        said, ranks = kind.said, list(kind.ranks.values())
        place = f"{said.file.rpartition('/')[2]}:{said.line}"
        whose = ranks[0].name if len(ranks) == 1 else self._names.of(kind.ranks)
        if kind.told:
            text = f"has raised {said.error} {kind.times} times"
        else:
            error = f"{said.error}: {said.text}" if said.text else said.error
            text = f"{_FIRST[said.what].format(expression=said.expression)}: {error}"
        # The first one is important: a breakpoint does not do what the user wants.
        self._say(f"meshrt: {whose}: {_NAMED[said.what]} at {place} {text}", "console" if kind.told else "important")
        kind.pause = min(2 * kind.pause, _AGAIN_MAX) if kind.told else _AGAIN
        kind.told = True

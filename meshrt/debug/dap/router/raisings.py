"""Expressions of breakpoints that raise, as the user is told of them: once in full for all ranks, then their count.

::

    heard --a moment: of all ranks--> told in full --heard again, after 1, 2, 4, ... 60 s--> told how often, and by whom
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import event
from meshrt.hooks.facts import Body

__all__ = ["Raisings"]

#: Seconds in which ranks are gathered; until it is told how often, at first and at most.
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
    "condition": "raises, and counts as false ({expression})",
    "hits": "raises, and counts as false ({expression})",
    "log": "says nothing, as it raises",
}


@dataclass(slots=True, eq=False)
class _Kind:
    """One expression, and one type of error."""

    said: Body
    ranks: dict[tuple[str, int], Rank] = field(default_factory=dict)
    times: int = 0
    told: bool = False
    pause: float = _WAVE
    telling: asyncio.TimerHandle | None = None


class Raisings:
    """The raising expressions of one session. On the router's loop."""

    def __init__(self, peer: Peer, names: Names) -> None:
        self._peer = peer
        self._names = names
        self._kinds: dict[tuple[str, str, int, str, str], _Kind] = {}

    def add(self, rank: Rank, rows: Iterable[Body]) -> None:
        """Take what has raised in a rank (event ``dap.raised``)."""
        for row in rows:
            key = (str(row["what"]), str(row["file"]), int(row["line"]), str(row["expression"]), str(row["error"]))
            kind = self._kinds.setdefault(key, _Kind(row))
            kind.ranks[rank.key] = rank
            kind.times += int(row["times"])
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
        place = f"{str(said['file']).rpartition('/')[2]}:{said['line']}"
        whose = ranks[0].name if len(ranks) == 1 else self._names.of(kind.ranks)
        if kind.told:
            text = f"has raised {said['error']} {kind.times} times"
        else:
            error = f"{said['error']}: {said['text']}" if said["text"] else said["error"]
            text = f"{_FIRST[said['what']].format(expression=said['expression'])}: {error}"
        # The first one is shown wherever the user looks: a breakpoint does not do what the user wants.
        category = "console" if kind.told else "important"
        text = f"meshrt: {whose}: {_NAMED[said['what']]} at {place} {text}\n"
        self._peer.write(event("output", category=category, output=text))
        kind.pause = min(2 * kind.pause, _AGAIN_MAX) if kind.told else _AGAIN
        kind.told = True

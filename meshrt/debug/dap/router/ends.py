"""Ends of ranks, as the user is told of them: one cause often ends many ranks, and is told once."""

from __future__ import annotations

import asyncio

from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import event

__all__ = ["Ends"]

#: Seconds in which ends are gathered.
_WAVE = 0.1


class Ends:
    """The ends of ranks in one session. On the router's loop."""

    def __init__(self, peer: Peer, names: Names) -> None:
        self._peer = peer
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
            # An IDE shows such a line wherever the user looks.
            self._peer.write(event("output", category="important", output=f"meshrt: {whose}: {why}\n"))

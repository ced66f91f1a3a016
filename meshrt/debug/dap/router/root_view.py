"""What both sessions of many ranks have: names, the console, and what is told once for all ranks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

from meshrt.debug.dap.router.channels import RankLink
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.console import Console
from meshrt.debug.dap.router.ranks import Key, Lives, Names, Rank
from meshrt.debug.dap.router.requests import Answer
from meshrt.debug.dap.router.told_once import Ends, Raisings
from meshrt.debug.dap.router.view import Peer, View
from meshrt.debug.dap.wire import Message

__all__ = ["RootView"]


class RootView(View):
    """A session with all ranks of a configuration, also with those that are born later.

    Args:
        number: Of this session, by which those of its ranks name it.
        forget: Called when the session ends.
    """

    def __init__(
        self, peer: Peer, configuration: Configuration, number: int, forget: Callable[[RootView], None]
    ) -> None:
        super().__init__(peer)
        self.number = number
        self.configuration = configuration
        self._forget = forget
        self._lives = Lives()
        self._names = Names()
        self._console = Console(peer.program, self._links, self._which, self._names, number)
        self._ends = Ends(peer, self._names)
        self._raisings = Raisings(peer, self._names)
        #: What ranks cost while the IDE has them, as it was told.
        self._prices: set[str] = set()

    @abstractmethod
    def _links(self) -> Mapping[Key, RankLink]:
        """Return the engines of the ranks that the IDE has."""

    def receive(self, message: Message) -> None:
        """Take a message of the IDE."""
        if message["type"] == "request":
            self._peer.begin(self._answer_with(message, lambda: self._serve(message)))

    @abstractmethod
    async def _serve(self, message: Message) -> Answer:
        """Serve a request. Raises MeshError, ConnectionError, TimeoutError; others for invalid DAP."""

    @abstractmethod
    def born(self, rank: Rank) -> None:
        """A rank of the configuration serves, for the first time or again. The session may be told more than once."""

    def costs(self, price: str) -> None:
        """Tell the user once what attaching costs, in words; "": nothing. All ranks with that Python cost the same."""
        if price and price not in self._prices:
            self._prices.add(price)
            self.said(f"meshrt: {price}")

    def over(self, why: str) -> None:
        """The program has ended."""
        self._ends.close()
        self.said(f"meshrt: {why}")
        self._peer.end()

    def gone(self) -> None:
        """The IDE has closed the connection."""
        self._ends.close()
        self._raisings.close()
        self._console.close()
        self._forget(self)

    async def _which(self, actor: str, ranks: str) -> set[Key]:
        """Return the ranks that a line of the console means. Raises as `Peer.which`."""
        return {rank.key for rank in await self._peer.which(actor or self.configuration.mesh, ranks)}

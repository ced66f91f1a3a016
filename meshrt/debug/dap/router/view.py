"""The interfaces between a session of an IDE and its connection, in both directions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from meshrt.debug.dap.router.channels import Channels
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.wire import Message, event
from meshrt.transport.tools import Program

__all__ = ["Peer", "RootView", "View"]


class Peer(Protocol):
    """The IDE at the other end of one connection."""

    channels: Channels
    program: Program

    async def which(self, mesh: str, ranks: str) -> list[Rank]:
        """Return the living ranks of a mesh's or an actor's name and a selection.

        Raises:
            MeshError: There are no such ranks.
            ConnectionError: The program has ended.
        """

    def ask(self, command: str, arguments: dict[str, Any], answered: Callable[[Message], None]) -> None:
        """Ask the IDE for something (a reverse request)."""

    def write(self, message: Message) -> None:
        """Send a message; never waits. It is given its number here."""

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that takes a while; it is cancelled when the connection ends."""

    def hang_up(self) -> None:
        """Close the connection once everything has been sent."""

    def end(self, *, left: bool = False) -> None:
        """Say that the session is over, and close the connection once the IDE has said goodbye (``left``: it has)."""


class View(ABC):
    """One session. On the router's loop."""

    @abstractmethod
    def attach(self, request: Message, initialize: dict[str, Any]) -> None:
        """Answer the attach request, sooner or later.

        Args:
            initialize: What the IDE has said of itself.
        """

    @abstractmethod
    def receive(self, message: Message) -> None:
        """Take a message that the IDE sends after that; never waits."""

    @abstractmethod
    def gone(self) -> None:
        """The connection has ended."""


class RootView(View):
    """A session with all ranks of a configuration, also with those that are born later.

    Args:
        number: Of this session, by which those of its ranks name it.
    """

    def __init__(self, peer: Peer, configuration: Configuration, number: int) -> None:
        self.number = number
        self.configuration = configuration
        self._peer = peer

    @abstractmethod
    def born(self, rank: Rank) -> None:
        """A rank of the configuration serves, for the first time or again. The session may be told more than once."""

    @abstractmethod
    def over(self, why: str) -> None:
        """The program has ended."""

    def said(self, text: str) -> None:
        """Write a line on the debug console."""
        self._peer.write(event("output", category="console", output=text.rstrip("\n") + "\n"))

    async def _which(self, actor: str, ranks: str) -> set[Key]:
        """Return the ranks that a line of the console means. Raises as `Peer.which`."""
        return {rank.key for rank in await self._peer.which(actor or self.configuration.mesh, ranks)}

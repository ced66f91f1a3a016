"""A session of an IDE, and its connection as the session sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Protocol

from meshrt.debug.dap.router.channels import Channels
from meshrt.debug.dap.router.members import SECONDS
from meshrt.debug.dap.router.rank_threads import WHY_NOT
from meshrt.debug.dap.router.ranks import Rank
from meshrt.debug.dap.router.requests import LATER, Answer
from meshrt.debug.dap.wire import Fields, Message, event, failure, response
from meshrt.errors import MeshError
from meshrt.transport.tools import Program

__all__ = ["Peer", "View"]


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

    def ask(self, command: str, arguments: Fields, answered: Callable[[Message], None]) -> None:
        """Ask the IDE for something (a reverse request)."""

    def write(self, message: Message) -> None:
        """Send a message; never waits. It is given its number here."""

    def begin(self, work: Coroutine[object, None, None]) -> None:
        """Do something that takes a while; it is cancelled when the connection ends."""

    def hang_up(self) -> None:
        """Close the connection once everything has been sent."""

    def end(self, *, left: bool = False) -> None:
        """Say that the session is over, and close the connection once the IDE has said goodbye (``left``: it has)."""


class View(ABC):
    """One session. On the router's loop."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.program = peer.channels.program

    @abstractmethod
    def attach(self, request: Message, initialize: Fields) -> None:
        """Answer the attach request, sooner or later.

        Args:
            initialize: What the IDE has said of itself.
        """

    @abstractmethod
    def receive(self, message: Message) -> None:
        """Take a message that the IDE sends after that; never waits."""

    async def _answer_with(self, message: Message, serve: Callable[[], Coroutine[object, None, Answer]]) -> None:
        """Answer a request with what ``serve`` returns, or refuse it with what it raises."""
        try:
            answer = await serve()
        except (MeshError, ConnectionError) as error:
            self.write(failure(message, str(error)))
        except TimeoutError as error:
            self.write(failure(message, str(error) or f"no answer within {SECONDS:g} s; {WHY_NOT}"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # What an IDE sends must not end the session.
            self.write(failure(message, f"{message['command']}: its arguments are not those of DAP ({error!r})"))
        else:
            if answer is not LATER:
                self.write(response(message, answer))

    def write(self, message: Message) -> None:
        """Send a message to the IDE."""
        self._peer.write(message)

    def said(self, text: str, category: str = "console") -> None:
        """Write a line on the debug console; ``important``: the IDE shows it wherever the user looks."""
        self._peer.write(event("output", category=category, output=text.rstrip("\n") + "\n"))

    @abstractmethod
    def gone(self) -> None:
        """The connection has ended."""

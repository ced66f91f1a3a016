"""A session of an IDE, its connection as the session sees it, and what both kinds of sessions of many ranks have."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Literal, Protocol

from meshrt.debug.dap.router.channels import Channels, RankLink
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.console import Console
from meshrt.debug.dap.router.members import SECONDS, WHY_NOT
from meshrt.debug.dap.router.ranks import Key, Names, Rank
from meshrt.debug.dap.router.told_once import Ends, Raisings
from meshrt.debug.dap.wire import Fields, Message, event, failure, response
from meshrt.errors import MeshError

__all__ = ["LATER", "Answer", "Peer", "RootView", "View"]


class _Later(enum.Enum):
    LATER = enum.auto()


#: In the place of an answer: it was given, or will be, by other means.
LATER: Literal[_Later.LATER] = _Later.LATER
#: The body of an answer; None: an answer without a body.
Answer = Fields | Literal[_Later.LATER] | None


class Peer(Protocol):
    """The IDE at the other end of one connection."""

    channels: Channels

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
            self.write(failure(message, f"{message['command']}: the arguments are not valid DAP ({error!r})"))
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
        #: The lives of ranks that the session knows.
        self._lives: dict[Key, int] = {}
        self._names = Names()
        self._console = Console(self.program, self._links, configuration.mesh, self._names, number)
        self._ends = Ends(self.said, self._names)
        self._raisings = Raisings(self.said, self._names)
        #: What ranks cost while the IDE has them, as it was told.
        self._prices: set[str] = set()

    def _is_new(self, rank: Rank) -> bool:
        """Note a rank, of which the session may be told more than once. Returns True the first time in each life."""
        before = self._lives.get(rank.key)
        self._lives[rank.key] = rank.life
        return before != rank.life

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

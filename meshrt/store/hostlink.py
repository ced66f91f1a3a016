"""The connection of a host's store to that of another machine: where it leads, what waits for it, what was asked there.

`meshrt.store.hostlinks` makes it, reads from it, and says what its states are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from meshrt.store.chain import StoreName
from meshrt.store.messages import FromStore, Offer, Piece, Pull, Relay, Skip, ToStore
from meshrt.store.protocol import HostStream
from meshrt.store.silence import Silence
from meshrt.wire.addresses import Port, Way
from meshrt.wire.handshake import ClientHandshake
from meshrt.wire.pending import PendingTable

if TYPE_CHECKING:
    from meshrt.wire.addresses import HostAddress

__all__ = ["Answered", "HostLink", "Lost"]


class Lost(msgspec.Struct, frozen=True):
    """The connection has ended; ``why`` follows "the host that ...". ``reached``: False if there was none."""

    why: str
    reached: bool = True


Answered = Callable[[ToStore | Piece | Lost], None]
"""Called with all answers to a question; an exception ends the connection."""


class HostLink:
    """The connection to the store of one host.

    Args:
        flush: Sends what is queued, as far as the connection takes it.
    """

    def __init__(self, name: StoreName, flush: Callable[[HostLink], None]) -> None:
        self.name = name
        #: None: it is not known where it listens.
        self.stream: HostStream | None = None
        #: Where it listens; None: at a path of this machine.
        self.address: HostAddress | None = None
        #: None once it is done.
        self.handshake: ClientHandshake | None = None
        #: The first bytes of it, as long as they could not be sent.
        self.hello = b""
        #: How often it was dialled in vain, and since when it is dialled now (monotonic).
        self.refusals = 0
        self.dialled = 0.0
        #: Since when it is searched (monotonic), and why it was not reached at its addresses.
        self.begun = 0.0
        self.problems: dict[Port, str] = {}
        #: Through the root, once there was no other one; and what is wrong if that has failed, too.
        self.way: Way | None = None
        self.failure = ""
        #: What was said before it was open.
        self.early: list[FromStore] = []
        #: What was asked, until it is forgotten.
        self.asked: PendingTable[Answered] = PendingTable()
        #: Where pieces are received that answer a question, by its number.
        self.places: dict[int, Callable[[int], memoryview | None]] = {}
        self.silence = Silence()
        self._flush = flush

    @property
    def agent_pid(self) -> int:
        """The pid of its agent, on its own machine."""
        return self.name.agent_pid

    @property
    def open(self) -> HostStream | None:
        """The stream, once messages may go there."""
        return self.stream if self.handshake is None else None

    @property
    def ports(self) -> tuple[Port, ...]:
        """Where others reach it, if it is on another machine."""
        return () if self.address is None else self.address.ports

    @property
    def port(self) -> Port:
        """Where it is dialled, or was last."""
        return self.ports[self.refusals % len(self.ports)]

    def ask(self, question: Callable[[int], Pull | Skip | Relay | Offer], answered: Answered) -> int:
        """Ask, and call ``answered`` with all answers until `forget`. Returns the number.

        Args:
            question: Returns the question with a number.
        """
        number = self.asked.add(answered)
        self.tell(question(number))
        return number

    def tell(self, message: FromStore) -> None:
        """Send a message; if it cannot be sent, all open questions are told."""
        if self.open is None:
            self.early.append(message)
        else:
            self.open.queue(message)
            self._flush(self)

    def forget(self, number: int) -> None:
        """Ignore further answers to this question."""
        self.asked.remove(number)
        self.places.pop(number, None)

    def place(self, number: int, size: int) -> memoryview | None:
        """Return where a piece is to be received; None: in memory of its own."""
        find = self.places.get(number)
        return None if find is None else find(size)

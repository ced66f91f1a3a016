"""The connections of a host's store to those of other machines: one for each, made for the first message to it.

==========  ==============================================  =========================================================
state       what happens                                    next
==========  ==============================================  =========================================================
unknown     the root is asked where it listens              knocking; lost, if the root knows no such host
knocking    TLS, and the proofs of both; after an error,    open; lost, after the last address
            and after `_SECONDS`, at the next address
open        messages go and come                            lost, with its end or with an invalid message
==========  ==============================================  =========================================================

What is to be sent waits until it is open. Hosts of one machine (as tests have them) listen at paths, and
are not unknown.

A question has a number. Messages of the other store with that number are passed to a function, until the question is
forgotten. When the connection ends, all of these functions are called with `Lost`.

Nothing here waits: the connections are in the agent's selector. So there is no `meshrt.store.questions.Question`, whose
thread waits for one answer; the table of numbers is the same.
"""

from __future__ import annotations

import errno
import selectors
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from meshrt.errors import MeshError, ProtocolError
from meshrt.store.chain import StoreName
from meshrt.store.dialling import begin_elsewhere, knock
from meshrt.store.messages import TO_STORE, FromStore, Offer, Piece, Pull, Relay, Skip, ToStore
from meshrt.store.protocol import HostStream, store_path
from meshrt.store.silence import Silence
from meshrt.transport.link import Connection
from meshrt.wire.errors import why_of
from meshrt.wire.handshake import ROLE_STORE, ClientHandshake, Identity
from meshrt.wire.pending import PendingTable

if TYPE_CHECKING:
    from meshrt.wire.addresses import HostAddress
    from meshrt.wire.certificate import Certificate

__all__ = ["Answered", "Elsewhere", "HostLink", "HostLinks", "Lost"]

#: Reads of one connection before others have their turn.
_READS = 16
#: How often a host is dialled that hangs up before it lets this one in; more often, if it has more addresses.
_DIALS = 5
#: Seconds for one address of another machine.
_SECONDS = 3.0


class Elsewhere(msgspec.Struct, frozen=True):
    """What stores of other machines are reached with.

    ``certificate``: that of the program. ``locate``: asks the root where a store listens, see `HostLinks.located`.
    """

    certificate: Certificate
    locate: Callable[[StoreName], None]


class Lost(msgspec.Struct, frozen=True):
    """The connection has ended; ``why`` follows "the host that ..."."""

    why: str


Answered = Callable[[ToStore | Piece | Lost], None]
"""Called with all answers to a question; an exception ends the connection."""


class HostLink:
    """The connection to the store of one host."""

    def __init__(self, links: HostLinks, name: StoreName) -> None:
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
        #: What was said before it was open.
        self.early: list[FromStore] = []
        #: What was asked, until it is forgotten.
        self.asked: PendingTable[Answered] = PendingTable()
        #: Where pieces are received that answer a question, by its number.
        self.places: dict[int, Callable[[int], memoryview | None]] = {}
        self.silence = Silence()
        self._links = links

    @property
    def agent_pid(self) -> int:
        """The pid of its agent, on its own machine."""
        return self.name.agent_pid

    @property
    def open(self) -> HostStream | None:
        """The stream, once messages may go there."""
        return self.stream if self.handshake is None else None

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
            self._links.flush(self)

    def forget(self, number: int) -> None:
        """Ignore further answers to this question."""
        self.asked.remove(number)
        self.places.pop(number, None)

    def place(self, number: int, size: int) -> memoryview | None:
        """Return where a piece is to be received; None: in memory of its own."""
        find = self.places.get(number)
        return None if find is None else find(size)


class HostLinks:
    """One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        directory: The runtime directory of the program.
        secret: Stores prove it to each other.
        identity: The identity of this host.

    Attributes:
        elsewhere: Where the program has several machines; None: all hosts listen at paths.
    """

    def __init__(self, selector: selectors.BaseSelector, directory: str, secret: bytes, identity: Identity) -> None:
        self._selector = selector
        self._directory = directory
        self._secret = secret
        self._identity = identity
        self.elsewhere: Elsewhere | None = None
        self._links: dict[StoreName, HostLink] = {}

    def find(self, machine: int, agent_pid: int) -> HostLink | None:
        """Return the connection to a host, if there is one."""
        return self._links.get(StoreName(machine, agent_pid))

    def to(self, machine: int, agent_pid: int) -> HostLink:
        """Return the connection to a host; it is made if there is none.

        Raises:
            MeshError: The host is lost.
            OSError: There is no descriptor, or the other store cannot accept more connections now.
        """
        name = StoreName(machine, agent_pid)
        found = self._links.get(name)
        if found is not None:
            return found
        link = HostLink(self, name)
        if self.elsewhere is None:
            try:
                self._dial(link)
            except (FileNotFoundError, ConnectionError):
                raise MeshError("is lost") from None
            self._links[name] = link
        else:
            self._links[name] = link
            self.elsewhere.locate(name)
        return link

    def located(self, name: StoreName, address: HostAddress | None) -> None:
        """The root says where a store listens; None: it knows no such host, or has lost it."""
        link = self._links.get(name)
        if link is None or link.stream is not None:
            return
        if address is None:
            self._lose(link, "is lost")
            return
        link.address = address
        try:
            self._dial(link)
        except (OSError, ProtocolError) as error:
            if not self._dial_again(link):
                self._lose(link, f"cannot be reached: {why_of(error)}")

    def _dial(self, link: HostLink) -> None:
        """Begin to connect, in the place of the stream that there is."""
        sock: Connection
        if self.elsewhere is not None and link.address is not None and link.address.ports:
            ports = link.address.ports
            sock = begin_elsewhere(ports[link.refusals % len(ports)], self.elsewhere.certificate)
            handshake = ClientHandshake(self._secret, ROLE_STORE, "store", self._identity)
            link.hello = handshake.hello()
        else:
            pid = link.agent_pid if link.address is None else link.address.agent_pid
            sock, handshake = knock(store_path(self._directory, pid), self._secret, self._identity, 0.0)
        self._unlisten(link)
        link.stream, link.handshake = HostStream(sock, link.place), handshake
        link.dialled = time.monotonic()
        events = selectors.EVENT_READ | selectors.EVENT_WRITE if link.hello else selectors.EVENT_READ
        self._selector.register(sock, events, lambda events: self._on_event(link, events))

    def _unlisten(self, link: HostLink) -> None:
        if link.stream is not None:
            self._selector.unregister(link.stream.sock)
            link.stream.close()
            link.stream = None

    def _dial_again(self, link: HostLink) -> bool:
        """The host has closed the connection before it accepted this one, as it does under load: nothing was lost.

        Or it cannot be reached at this address.
        """
        most = _DIALS if link.address is None else max(_DIALS, 2 * len(link.address.ports))
        while link.refusals + 1 < most:
            link.refusals += 1
            try:
                self._dial(link)
            except (OSError, ProtocolError):
                if link.address is None or not link.address.ports:
                    return False
            else:
                return True
        return False

    def tick(self) -> None:
        """Give up addresses that do not answer."""
        late = time.monotonic() - _SECONDS
        for link in tuple(self._links.values()):
            elsewhere = link.address is not None and link.address.ports
            if elsewhere and link.handshake is not None and link.dialled < late and not self._dial_again(link):
                self._lose(link, "cannot be reached at any of its addresses")

    def close(self) -> None:
        """Close all connections."""
        for link in tuple(self._links.values()):
            self._lose(link, "is of no use to this one, which ends")

    def flush(self, link: HostLink) -> None:
        """Send what the connection takes; the rest goes when it takes more."""
        stream = link.open
        if stream is None or link not in self._links.values():
            return  # nothing goes before the proof
        try:
            done = stream.flush()
        except OSError:
            return  # it has ended, which is read
        self._want(stream, selectors.EVENT_READ if done else selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _want(self, stream: HostStream, events: int) -> None:
        key = self._selector.get_key(stream.sock)
        if key.events != events:
            self._selector.modify(stream.sock, events, key.data)

    def _on_event(self, link: HostLink, events: int) -> None:
        if link not in self._links.values() or link.stream is None:
            return  # closed since it was found ready
        try:
            if link.hello:
                self._say_hello(link, link.stream)
            elif events & selectors.EVENT_WRITE:
                self.flush(link)
            if events & selectors.EVENT_READ:
                self._read(link, link.stream)
        except OSError as error:
            if link.handshake is None or not self._dial_again(link):
                self._lose(link, f"is lost: {error.strerror}")
        except Exception as error:
            # Any error: a bad message affects its sender only.
            self._lose(link, f"has sent an invalid message: {why_of(error)}")

    def _say_hello(self, link: HostLink, stream: HostStream) -> None:
        try:
            stream.sock.send(link.hello)
        except BlockingIOError:
            return  # it is not connected yet
        link.hello = b""
        self._want(stream, selectors.EVENT_READ)

    def _read(self, link: HostLink, stream: HostStream) -> None:
        reads = 0
        while link.stream is stream and (reads < _READS or stream.pending):
            reads += 1
            try:
                messages = self._messages(link, stream)
            except BlockingIOError:
                return
            link.silence.heard()
            if messages is None:
                if link.handshake is None or not self._dial_again(link):
                    self._lose(link, "is lost")
                return
            for message in messages:
                answered = link.asked.find(message.id)
                if answered is not None:  # or else it was forgotten
                    answered(message)

    def _messages(self, link: HostLink, stream: HostStream) -> list[Piece | ToStore] | None:
        """Read once. Returns what has come, None at the end. Raises BlockingIOError, OSError, ProtocolError."""
        if link.handshake is None:
            return stream.read_all(TO_STORE)
        data = stream.receive(descriptors=False)
        if data is None:
            raise BlockingIOError
        if not data:
            return None
        proof = link.handshake.receive_data(data)
        if proof:
            self._check(link)
            stream.sock.send(proof)
        if not link.handshake.done:
            return []
        data, link.handshake = link.handshake.leftover, None
        for message in link.early:
            stream.queue(message)
        link.early.clear()
        self.flush(link)
        return stream.messages(data, TO_STORE)

    @staticmethod
    def _check(link: HostLink) -> None:
        """Another host of the program may have the same address as the one that is meant, on a network of its own."""
        found = None if link.handshake is None else link.handshake.server
        if link.address is not None and found is not None and found[:2] != link.address[:2]:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "another host is at its address")

    def _lose(self, link: HostLink, why: str) -> None:
        """``why``: what follows "the host that ..."."""
        self._links = {key: each for key, each in self._links.items() if each is not link}
        self._unlisten(link)
        for answered in link.asked.clear():
            answered(Lost(why))

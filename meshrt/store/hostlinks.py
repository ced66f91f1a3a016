"""The connections of a host's store to those of other machines: one for each, made for the first message to it.

A question has a number. Messages of the other store with that number are passed to a function, until the question is
forgotten. When the connection ends, all of these functions are called with `Lost`.

Nothing here waits: the connections are in the agent's selector. So there is no `meshrt.store.questions.Question`, whose
thread waits for one answer; the table of numbers is the same.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable

import msgspec

from meshrt.errors import MeshError, ProtocolError
from meshrt.store.dialling import knock
from meshrt.store.messages import TO_STORE, FromStore, Offer, Pull, ToStore
from meshrt.store.protocol import DescriptorStream, store_path
from meshrt.store.silence import Silence
from meshrt.wire.errors import why_of
from meshrt.wire.handshake import ClientHandshake, Identity
from meshrt.wire.pending import PendingTable

__all__ = ["Answered", "HostLink", "HostLinks", "Lost"]

#: Reads of one connection before others have their turn.
_READS = 16
#: How often a host is dialled that hangs up before it lets this one in.
_DIALS = 5


class Lost(msgspec.Struct, frozen=True):
    """The connection has ended; ``why`` follows "the host that ..."."""

    why: str


Answered = Callable[[ToStore | Lost], None]
"""Called with all answers to a question; an exception ends the connection."""


class HostLink:
    """The connection to the store of one host."""

    def __init__(self, links: HostLinks, agent_pid: int, stream: DescriptorStream, handshake: ClientHandshake) -> None:
        self.agent_pid = agent_pid
        self.stream = stream
        #: None once it is done.
        self.handshake: ClientHandshake | None = handshake
        #: How often the host has hung up before it let this one in.
        self.refusals = 0
        #: What was asked, until it is forgotten.
        self.asked: PendingTable[Answered] = PendingTable()
        self.silence = Silence()
        self._links = links

    def ask(self, question: Callable[[int], Pull | Offer], answered: Answered) -> int:
        """Ask, and call ``answered`` with all answers until `forget`. Returns the number.

        Args:
            question: Returns the question with a number.
        """
        number = self.asked.add(answered)
        self.tell(question(number))
        return number

    def tell(self, message: FromStore) -> None:
        """Send a message; if it cannot be sent, all open questions are told."""
        self.stream.queue(message)
        self._links.flush(self)

    def forget(self, number: int) -> None:
        """Ignore further answers to this question."""
        self.asked.remove(number)


class HostLinks:
    """One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        directory: The runtime directory of the program.
        secret: Stores prove it to each other.
        identity: The identity of this host.
    """

    def __init__(self, selector: selectors.BaseSelector, directory: str, secret: bytes, identity: Identity) -> None:
        self._selector = selector
        self._directory = directory
        self._secret = secret
        self._identity = identity
        #: By machine and pid of the agent.
        self._links: dict[tuple[int, int], HostLink] = {}

    def find(self, machine: int, agent_pid: int) -> HostLink | None:
        """Return the connection to a host, if there is one."""
        return self._links.get((machine, agent_pid))

    def to(self, machine: int, agent_pid: int) -> HostLink:
        """Return the connection to a host; it is made if there is none.

        Raises:
            MeshError: The host is lost.
            OSError: There is no descriptor, or the other store cannot accept more connections now.
        """
        found = self.find(machine, agent_pid)
        if found is not None:
            return found
        try:
            sock, handshake = self._dial(agent_pid)
        except (FileNotFoundError, ConnectionError):
            raise MeshError("is lost") from None
        link = self._links[machine, agent_pid] = HostLink(self, agent_pid, DescriptorStream(sock), handshake)
        self._listen(link)
        return link

    def _dial(self, agent_pid: int) -> tuple[socket.socket, ClientHandshake]:
        return knock(store_path(self._directory, agent_pid), self._secret, self._identity, 0.0)

    def _listen(self, link: HostLink) -> None:
        self._selector.register(link.stream.sock, selectors.EVENT_READ, lambda events: self._on_event(link, events))

    def _dial_again(self, link: HostLink) -> bool:
        """The host has closed the connection before it accepted this one, as it does under load: nothing was lost."""
        link.refusals += 1
        if link.refusals >= _DIALS:
            return False
        try:
            sock, link.handshake = self._dial(link.agent_pid)
        except (OSError, ProtocolError):
            return False
        self._selector.unregister(link.stream.sock)
        before, link.stream = link.stream, DescriptorStream(sock)
        link.stream.unsent, before.unsent = before.unsent, link.stream.unsent
        before.close()
        self._listen(link)
        return True

    def close(self) -> None:
        """Close all connections."""
        for link in tuple(self._links.values()):
            self._lose(link, "is of no use to this one, which ends")

    def flush(self, link: HostLink) -> None:
        """Send what the connection takes; the rest goes when it takes more."""
        if link.handshake is not None or link not in self._links.values():
            return  # nothing goes before the proof
        try:
            done = link.stream.flush()
        except OSError:
            return  # it has ended, which is read
        events = selectors.EVENT_READ if done else selectors.EVENT_READ | selectors.EVENT_WRITE
        key = self._selector.get_key(link.stream.sock)
        if key.events != events:
            self._selector.modify(link.stream.sock, events, key.data)

    def _on_event(self, link: HostLink, events: int) -> None:
        if link not in self._links.values():
            return  # closed since it was found ready
        try:
            if events & selectors.EVENT_WRITE:
                self.flush(link)
            if events & selectors.EVENT_READ:
                self._read(link)
        except OSError as error:
            if link.handshake is None or not self._dial_again(link):
                self._lose(link, f"is lost: {error.strerror}")
        except Exception as error:
            # Any error: a bad message affects its sender only.
            self._lose(link, f"has sent an invalid message: {why_of(error)}")

    def _read(self, link: HostLink) -> None:
        for _ in range(_READS):
            data = link.stream.receive(descriptors=False)  # what another machine has is not open here
            if data is None:
                return
            link.silence.heard()
            if not data:
                if link.handshake is None or not self._dial_again(link):
                    self._lose(link, "is lost")
                return
            if link.handshake is not None:
                proof = link.handshake.receive_data(data)
                if proof:
                    link.stream.sock.send(proof)
                if not link.handshake.done:
                    return
                data, link.handshake = link.handshake.leftover, None
                self.flush(link)
            for message, _ in link.stream.feed(data, TO_STORE):
                answered = link.asked.find(message.id)
                if answered is not None:  # or else it was forgotten
                    answered(message)

    def _lose(self, link: HostLink, why: str) -> None:
        """``why``: what follows "the host that ..."."""
        self._links = {key: each for key, each in self._links.items() if each is not link}
        self._selector.unregister(link.stream.sock)
        link.stream.close()
        for answered in link.asked.clear():
            answered(Lost(why))

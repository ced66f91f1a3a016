"""The connections of a host's store to those of other machines: one for each, made for the first message to it.

==========  ==============================================  =========================================================
state       what happens                                    next
==========  ==============================================  =========================================================
unknown     the root is asked where it listens              knocking; lost, if the root knows no such host
knocking    TLS, and the proofs of both; after an error,    open; unreached, after the last address
            and after `_SECONDS`, at the next address
unreached   the root is asked for a way, which is tried     open; asked, if it fails; lost, if the host is
asked       the root is asked whether the host lives        lost, in any case; why depends on that
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
from meshrt.store.hostlink import HostLink, Lost
from meshrt.store.messages import TO_STORE, Piece, ToStore
from meshrt.store.protocol import HostStream, store_path
from meshrt.transport.link import Connection
from meshrt.transport.racing import described, reason_of
from meshrt.wire.addresses import STORE, Way
from meshrt.wire.errors import why_of
from meshrt.wire.handshake import ROLE_STORE, ClientHandshake, Identity

if TYPE_CHECKING:
    from meshrt.wire.addresses import HostAddress
    from meshrt.wire.certificate import Certificate

__all__ = ["Elsewhere", "HostLinks"]

#: Reads of one connection before others have their turn.
_READS = 16
#: How often a host is dialled that hangs up before it lets this one in; more often, if it has more addresses.
_DIALS = 5
#: Seconds for one address of another machine.
_SECONDS = 3.0
#: Seconds after which an address is not tried a second time.
_DIRECT_SECONDS = 4.0


class Elsewhere(msgspec.Struct, frozen=True):
    """What stores of other machines are reached with.

    ``certificate``: that of the program. ``locate``: asks the root where a store listens, see `HostLinks.located`;
    ``ask_way``: asks it for a way to one that is not reached there, and says why, see `HostLinks.way_found`.
    """

    certificate: Certificate
    locate: Callable[[StoreName], None]
    ask_way: Callable[[StoreName, str], None]


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
        link = HostLink(name, self.flush)
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
        if link is None or (link.address is not None and not link.failure):
            return
        if address is None:
            self._lose(link, "is lost")
            return
        if link.failure:
            self._lose(link, link.failure, reached=False)
            return
        link.address, link.begun = address, time.monotonic()
        try:
            self._dial(link)
        except (OSError, ProtocolError) as error:
            self._not_reached(link, error)

    def way_found(self, name: StoreName, way: Way | None) -> None:
        """The root has a way to a store that is not reached where it listens; None: as in `located`."""
        link = self._links.get(name)
        if link is None or link.way is not None:
            return
        if way is None:
            self._lose(link, "is lost")
            return
        link.way = way
        try:
            self._dial(link)
        except (OSError, ProtocolError) as error:
            self._not_reached(link, error)

    def _dial(self, link: HostLink) -> None:
        """Begin to connect, in the place of the stream that there is."""
        sock: Connection
        if self.elsewhere is not None and link.ports:
            sock = begin_elsewhere(link.way or Way(link.port, STORE), self.elsewhere.certificate)
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

    def _not_reached(self, link: HostLink, problem: Exception | str) -> None:
        """The connection has ended before it was open: nothing was lost. It is tried again, at the next address.

        The host may have closed it under load, or not be there.
        """
        why = problem if isinstance(problem, str) else reason_of(problem)
        while link.way is None and self._may_dial(link):
            if link.ports:
                link.problems[link.port] = why
            link.refusals += 1
            try:
                self._dial(link)
            except (OSError, ProtocolError) as error:
                why = reason_of(error)
            else:
                return
        if self.elsewhere is None or not link.ports:
            self._lose(link, f"is lost: {why}")
            return
        self._unlisten(link)
        link.handshake = None
        if link.way is None:
            link.problems[link.port] = why
            self.elsewhere.ask_way(link.name, described(link.problems))
        else:  # the host may have been lost meanwhile
            link.failure = f"cannot be reached: {described(link.problems)}; through the script: {why}"
            self.elsewhere.locate(link.name)

    @staticmethod
    def _may_dial(link: HostLink) -> bool:
        """Whether a host that was not reached is dialled once more, before the root is asked for a way."""
        dials = link.refusals + 1
        late = time.monotonic() - link.begun > _DIRECT_SECONDS and dials >= len(link.ports) > 0
        return dials < max(_DIALS, 2 * len(link.ports)) and not late

    def tick(self) -> None:
        """Give up addresses that do not answer."""
        late = time.monotonic() - _SECONDS
        for link in tuple(self._links.values()):
            # By a way through the root the host may come late: the root ends that.
            if link.ports and link.way is None and link.handshake is not None and link.dialled < late:
                self._not_reached(link, "no answer in time")

    def close(self) -> None:
        """Close all connections."""
        for link in tuple(self._links.values()):
            self._lose(link, "was disconnected: this host is ending")

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
            if link.handshake is None:
                self._lose(link, f"is lost: {error.strerror}")
            else:
                self._not_reached(link, error)
        except Exception as error:
            # Any error: a bad message affects its sender only.
            if link.handshake is None or not link.ports:
                self._lose(link, f"has sent an invalid message: {why_of(error)}")
            else:
                self._not_reached(link, error)  # another program is there

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
                if link.handshake is None:
                    self._lose(link, "is lost")
                else:
                    self._not_reached(link, "the peer has closed the connection")
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
            raise ConnectionRefusedError(errno.ECONNREFUSED, "its address is used by another host")

    def _lose(self, link: HostLink, why: str, *, reached: bool = True) -> None:
        """``why``: what follows "the host that ..."."""
        self._links = {key: each for key, each in self._links.items() if each is not link}
        self._unlisten(link)
        for answered in link.asked.clear():
            answered(Lost(why, reached))

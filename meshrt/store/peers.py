"""The peers of the store of a host: the processes of this machine, and the stores of others.

No function here waits for a peer.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Set
from typing import TYPE_CHECKING

import msgspec

from meshrt.errors import MeshError, ProtocolError
from meshrt.store.chain import StoreName
from meshrt.store.exports import Exports
from meshrt.store.messages import FROM_PROCESS, FROM_STORE, Dropped, Freed, FromProcess, FromStore, ToProcess, ToStore
from meshrt.store.protocol import DescriptorStream, Incoming, close_descriptors, queue_piece
from meshrt.transport.acceptor import SelectorReaders, listening_socket
from meshrt.transport.connecting import secured
from meshrt.transport.entrance import Entrance
from meshrt.transport.link import Connection, peer_of
from meshrt.transport.liveness import ROOT_SECONDS, end_when_silent
from meshrt.wire.errors import why_of
from meshrt.wire.handshake import ROLE_STORE, Identity, ServerHandshake
from meshrt.wire.tree import Later, Refusal

if TYPE_CHECKING:
    from meshrt.wire.certificate import Certificate

__all__ = ["Peer", "Peers"]

#: Answers that a process may leave unread. Beyond, it is not read from: each may have a descriptor with it.
_ANSWERS_MAX = 64


class Peer(msgspec.Struct, eq=False):
    """One connection."""

    stream: DescriptorStream
    #: ... or, of the store of another machine, the negative number of that connection.
    pid: int
    #: The store that it is, if it is one.
    host: StoreName
    exports: Exports = msgspec.field(default_factory=Exports)
    #: What it has said and was not served yet, as it does not read its answers.
    waiting: deque[Incoming[FromProcess]] = msgspec.field(default_factory=deque)

    @property
    def pending(self) -> bool:
        """Whether there is something to read that the kernel does not know of."""
        return bool(getattr(self.stream.sock, "pending", False))


class Peers:
    """Listens at a unix socket, and is given connections of other machines. One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        path: Of the socket.
        secret: Peers prove that they have it.
        own: The identity of this host.
        from_process: Called with a process and its message; removes the descriptors that it keeps from those that have
            come with it. An exception ends the connection.
        from_store: Called with the store of another machine and its message. An exception ends the connection.
        ended: Called with the number of a store of another machine whose connection has ended.
        later: Calls a function after some seconds, on that thread.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        path: str,
        secret: bytes,
        own: Identity,
        from_process: Callable[[Peer, Incoming[FromProcess]], None],
        from_store: Callable[[Peer, FromStore], None],
        ended: Callable[[int], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._selector = selector
        self._path = path
        self._own = own
        self._from_process = from_process
        self._from_store = from_store
        self._ended = ended
        #: Stores of other machines that have connected, so far.
        self._hosts = 0
        #: Bytes of segments that they were sent.
        self.sent = 0
        self._peers: dict[int, list[Peer]] = {}
        self._entrance: Entrance[Connection] = Entrance(
            SelectorReaders(selector),
            listening_socket(path),
            "a process that dials the store",
            secret,
            ROLE_STORE,
            self._let_in,
            later,
            identity=lambda: own,
        )
        self._entrance.open()

    def tick(self) -> None:
        """Listen where others look for this store; tell other stores that what they wait for is still to come."""
        self._entrance.listen_again()
        for peer in self._stores():
            if not peer.stream.unsent:  # or else it does not read
                for number in peer.exports.numbers():
                    self.answer(peer, Later(number))

    def _stores(self) -> list[Peer]:
        return [peer for pid, peers in self._peers.items() if pid < 0 for peer in peers]

    def admit(self, sock: socket.socket, certificate: Certificate, accepted: float) -> None:
        """Take a connection of the store of another machine, accepted then (monotonic). It has to prove itself."""
        end_when_silent(sock, ROOT_SECONDS)
        self._entrance.admit(secured(sock, certificate), accepted)

    def grown(self, segment: int) -> None:
        """There are more bytes of a segment, for those that it is sent to."""
        for peer in self._stores():
            if peer.exports and peer.exports.has(segment):
                self._guarded(peer, functools.partial(self._flush, peer))

    def failed(self, segment: int, why: str) -> list[int]:
        """No more bytes of a segment come. Returns the stores that were sent it, and are told."""
        found = []
        for peer in self._stores():
            for number in peer.exports.cancel([segment]):
                found.append(peer.pid)
                self.answer(peer, Refusal(number, why))
        return found

    def pids(self) -> Set[int]:
        """Return the connected peers."""
        return self._peers.keys()

    def connected(self, peer: Peer) -> bool:
        """Whether the connection is there."""
        return peer in self._peers.get(peer.pid, ())

    def answer(self, peer: Peer, message: ToProcess | ToStore) -> bool:
        """Say something to a peer. Returns whether its connection is there."""
        if not self.connected(peer):
            return False
        peer.stream.queue(message)
        try:
            return self._flush(peer)
        except OSError:
            self._close(peer)
            return False

    def tell(self, pid: int, message: Freed | Dropped) -> None:
        """Say something to a process, if it is connected."""
        for peer in self._peers.get(pid, ())[:1]:
            self.answer(peer, message)

    def unread(self) -> list[tuple[Peer, int]]:
        """Return which processes have written what was not read, and how many bytes were read of each when it is.

        A process that is not let in yet has written nothing but its proof.
        """
        peers = [peer for pid, peers in self._peers.items() if pid > 0 for peer in peers]
        found = [(peer, peer.stream.unread()) for peer in peers]
        return [(peer, peer.stream.received + unread) for peer, unread in found if unread or peer.waiting]

    def catch_up(self, unread: list[tuple[Peer, int]]) -> None:
        """Hear what was not read then. Not while a message is being heard: those that came with it are not yet."""
        for peer, mark in unread:
            hear = functools.partial(self._hear, peer, all_of_it=True)
            self._guarded(peer, hear)
            while peer.stream.received < mark:
                before = peer.stream.received
                self._on_event(peer, selectors.EVENT_READ)
                self._guarded(peer, hear)
                if peer.stream.received == before:
                    break  # its connection was closed

    def close(self) -> None:
        """Listen no more."""
        self._entrance.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _let_in(self, sock: Connection, handshake: ServerHandshake) -> None:
        machine, agent_pid, _ = handshake.client
        if machine != self._own.machine:
            self._hosts += 1
            pid = -self._hosts
        elif isinstance(sock, socket.socket):
            pid = peer_of(sock)[0]
        else:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "a process of this machine at its port")
        peer = Peer(DescriptorStream(sock), pid, StoreName(machine, agent_pid))
        self._selector.register(sock, selectors.EVENT_READ, lambda events: self._on_event(peer, events))
        self._peers.setdefault(pid, []).append(peer)
        if handshake.leftover:
            self._guarded(peer, lambda: self._take(peer, handshake.leftover))

    def _on_event(self, peer: Peer, events: int) -> None:
        if self.connected(peer):  # or else it was closed since it was found ready
            self._guarded(peer, lambda: self._serve(peer, events))

    def _guarded(self, peer: Peer, serve: Callable[[], object]) -> None:
        """Serve a peer: an error ends its connection alone."""
        try:
            serve()
        except OSError:
            self._close(peer)
        except Exception as error:
            # Any error: a bad message affects its sender only.
            if not isinstance(error, MeshError):
                error = ProtocolError(f"an invalid message ({why_of(error)})")
            self._entrance.refusals.note(f"process {peer.pid}, at the store,", error)
            self._close(peer)

    def _serve(self, peer: Peer, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(peer)
            self._hear(peer)
        more = not peer.waiting
        while more:
            data = peer.stream.receive(descriptors=peer.pid > 0)
            if data:
                self._take(peer, data)
            elif data is not None:  # the end of the stream
                self._close(peer)
            more = bool(data) and not peer.waiting and self.connected(peer) and peer.pending
        if self.connected(peer) and (peer.stream.unsent or peer.exports):
            self._flush(peer)

    def _hear(self, peer: Peer, *, all_of_it: bool = False) -> None:
        """Serve what a process has said, as long as it reads its answers."""
        while peer.waiting and self.connected(peer):
            if len(peer.stream.unsent) >= _ANSWERS_MAX and not all_of_it:
                self._flush(peer)
                if len(peer.stream.unsent) >= _ANSWERS_MAX:
                    return
            incoming = peer.waiting.popleft()
            try:
                self._from_process(peer, incoming)
            finally:
                close_descriptors(incoming.descriptors)

    def _take(self, peer: Peer, data: bytes) -> None:
        """Handle the messages that ``data`` completes."""
        if peer.pid < 0:
            for message, _ in peer.stream.feed(data, FROM_STORE):
                self._from_store(peer, message)
            return
        peer.waiting += peer.stream.feed(data, FROM_PROCESS)
        self._hear(peer)

    def _flush(self, peer: Peer) -> bool:
        """Send what the connection takes. Returns whether the peer may read it still."""
        try:
            done = peer.stream.flush()
        except OSError:
            if peer.pid < 0:
                raise
            # What a process has said before it ended counts still: the connection is read to its end.
            peer.stream.discard()
            return False
        if done and peer.exports:
            piece = peer.exports.next()
            if piece is not None:
                queue_piece(peer.stream, piece)
                self.sent += len(piece.data)
            done = piece is None  # it goes when the others have had their turn
        events = selectors.EVENT_WRITE if peer.waiting else selectors.EVENT_READ
        events |= 0 if done else selectors.EVENT_WRITE
        key = self._selector.get_key(peer.stream.sock)
        if key.events != events:
            self._selector.modify(peer.stream.sock, events, key.data)
        return True

    def _close(self, peer: Peer) -> None:
        others = self._peers.get(peer.pid, [])
        if peer not in others:
            return
        others.remove(peer)
        if not others:
            del self._peers[peer.pid]
        if peer.pid < 0:
            self._ended(peer.pid)
        self._selector.unregister(peer.stream.sock)
        peer.stream.close()
        close_descriptors(*(incoming.descriptors for incoming in peer.waiting))

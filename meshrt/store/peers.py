"""The peers of the store of a host: the processes of this machine, and the stores of others.

No function here waits for a peer.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterator, Set

import msgspec

from meshrt.errors import MeshError, ProtocolError
from meshrt.store.messages import (
    FROM_PROCESS,
    FROM_STORE,
    Dropped,
    Freed,
    FromProcess,
    FromStore,
    Piece,
    ToProcess,
    ToStore,
)
from meshrt.store.protocol import DescriptorStream, Incoming, close_descriptors
from meshrt.transport.acceptor import SelectorReaders, listening_socket
from meshrt.transport.entrance import Entrance
from meshrt.transport.link import peer_of
from meshrt.wire.errors import why_of
from meshrt.wire.handshake import ROLE_STORE, Identity, ServerHandshake

__all__ = ["PIECE", "Exports", "Peer", "Peers"]


#: Bytes of a piece: it is read when the connection has taken the one before, so a slow reader costs no memory.
PIECE = 256 << 10


class Exports:
    """The bytes of segments to send over one connection to the store of another machine."""

    def __init__(self) -> None:
        #: Segments, and the ranges of them to send.
        self._left: deque[tuple[int, Iterator[Piece]]] = deque()

    def begin(self, number: int, segment: int, descriptor: int, start: int, size: int) -> None:
        """Send bytes of a file, which stays open until they are sent or given up: their receiver holds them."""
        self._left.append((segment, _pieces(number, descriptor, start, start + size)))

    def cancel(self, segments: Collection[int]) -> None:
        """These are wanted no more."""
        self._left = deque(entry for entry in self._left if entry[0] not in segments)

    def next(self) -> Piece | None:
        """Return the next message; None: nothing is left. Raises OSError where the file cannot be read."""
        while self._left:
            for message in self._left[0][1]:
                return message
            self._left.popleft()
        return None

    def __bool__(self) -> bool:
        return bool(self._left)


def _pieces(number: int, descriptor: int, start: int, end: int) -> Iterator[Piece]:
    while start < end:
        data = os.pread(descriptor, min(PIECE, end - start), start)
        if not data:
            raise OSError("shared memory ends before what was written there")
        start += len(data)
        yield Piece(number, data)


class Peer(msgspec.Struct, eq=False):
    """One connection."""

    stream: DescriptorStream
    #: ... or, of the store of another machine, the negative number of that connection.
    pid: int
    exports: Exports = msgspec.field(default_factory=Exports)


class Peers:
    """Listens at a unix socket. One thread: that of the selector.

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
        self._entrance = Entrance(
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
        """Listen where others look for this store."""
        self._entrance.listen_again()

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
        return [(peer, peer.stream.received + unread) for peer in peers if (unread := peer.stream.unread())]

    def catch_up(self, unread: list[tuple[Peer, int]]) -> None:
        """Hear what was not read then. Not while a message is being heard: those that came with it are not yet."""
        for peer, mark in unread:
            while peer.stream.received < mark:
                before = peer.stream.received
                self._on_event(peer, selectors.EVENT_READ)
                if peer.stream.received == before:
                    break  # its connection was closed

    def close(self) -> None:
        """Listen no more."""
        self._entrance.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _let_in(self, sock: socket.socket, handshake: ServerHandshake) -> None:
        pid = peer_of(sock)[0]
        if handshake.client.machine != self._own.machine:
            self._hosts += 1
            pid = -self._hosts
        peer = Peer(DescriptorStream(sock), pid)
        self._selector.register(sock, selectors.EVENT_READ, lambda events: self._on_event(peer, events))
        self._peers.setdefault(pid, []).append(peer)
        if handshake.leftover:
            self._guarded(peer, lambda: self._take(peer, handshake.leftover))

    def _on_event(self, peer: Peer, events: int) -> None:
        if self.connected(peer):  # or else it was closed since it was found ready
            self._guarded(peer, lambda: self._serve(peer, events))

    def _guarded(self, peer: Peer, serve: Callable[[], None]) -> None:
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
        data = peer.stream.receive(descriptors=peer.pid > 0)
        if data:
            self._take(peer, data)
        elif data is not None:  # the end of the stream
            self._close(peer)
            return
        if peer.stream.unsent or peer.exports:
            self._flush(peer)

    def _take(self, peer: Peer, data: bytes) -> None:
        """Handle the messages that ``data`` completes."""
        if peer.pid < 0:
            for message, _ in peer.stream.feed(data, FROM_STORE):
                self._from_store(peer, message)
            return
        messages = peer.stream.feed(data, FROM_PROCESS)
        try:
            for incoming in messages:
                self._from_process(peer, incoming)
        finally:
            close_descriptors(*(incoming.descriptors for incoming in messages))

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
                peer.stream.queue(piece)
                self.sent += len(piece.data)
            done = piece is None  # it goes when the others have had their turn
        events = selectors.EVENT_READ if done else selectors.EVENT_READ | selectors.EVENT_WRITE
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

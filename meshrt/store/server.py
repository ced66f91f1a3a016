"""The store of one host: it listens in the host agent, and knows the holders of segments (`meshrt.store.registry`).

It keeps a descriptor of every chunk, so that data of a process outlives it for as long as another process holds it.
No function here waits for a process.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from meshrt.errors import MeshError
from meshrt.store import messages
from meshrt.store.chain import Chains, StoreName
from meshrt.store.deliveries import Deliveries
from meshrt.store.exports import Source
from meshrt.store.hostlinks import Elsewhere, HostLinks
from meshrt.store.imports import Imports
from meshrt.store.lease import Loan
from meshrt.store.limits import free_memory
from meshrt.store.machine import machine_of
from meshrt.store.peers import Peer, Peers
from meshrt.store.protocol import Incoming, store_path
from meshrt.store.registry import Chunk, Registry, Segment
from meshrt.transport.kernel import start_of
from meshrt.wire.handshake import Identity
from meshrt.wire.tree import AskWay, Locate, Located, Refusal, StoreWay

if TYPE_CHECKING:
    from meshrt.wire.certificate import Certificate

__all__ = ["StoreServer"]

#: Memory that is left to the rest of the host, bytes.
_SPARE = 64 << 20
_NO_DESCRIPTOR = "the host agent has no file descriptor left (see ulimit -n)"


class StoreServer:
    """Listens at `store_path`. One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        directory: The runtime directory of the program.
        run_directory: For fetched segments that have no room in memory.
        secret: Processes prove that they have it.
        limit: Bytes that all processes may have written together.
        later: Calls a function after so many seconds, not from within this call.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        directory: str,
        run_directory: str,
        secret: bytes,
        limit: int,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        own = Identity(machine_of(os.getpid()), os.getpid(), os.getpid())
        self._later = later
        self.registry = Registry(limit, self._freed, self._drop)
        self._links = HostLinks(selector, directory, secret, own)
        self.imports = Imports(
            self._links,
            run_directory,
            own,
            self.registry,
            lambda: free_memory() - _SPARE,
            lambda segment: self._peers.grown(segment),
            self._failed,
        )
        self._chains = Chains()
        self._deliveries = Deliveries(self._links)
        #: When processes without a connection were started: their pids may be given to others.
        self._starts: dict[int, int] = {}
        path = store_path(directory, os.getpid())
        self._peers = Peers(selector, path, secret, own, self._from_process, self._from_store, self._ended, later)
        #: Of the program, once it has several machines.
        self._certificate: Certificate | None = None

    def be_certified(self, certificate: Certificate, tell: Callable[[Locate | AskWay], None]) -> None:
        """The program has several machines: reach their stores, and be reached.

        Args:
            tell: Asks the root where other stores are; `told_where` is called then.
        """
        self._certificate = certificate
        self._links.elsewhere = Elsewhere(
            certificate, lambda host: tell(Locate(*host)), lambda host, why: tell(AskWay(*host, why))
        )

    def told_where(self, answer: Located | StoreWay) -> None:
        """The root says where another store is."""
        name = StoreName(answer.machine, answer.agent_pid)
        if isinstance(answer, Located):
            self._links.located(name, answer.address)
        else:
            self._links.way_found(name, answer.way)

    def admit(self, sock: socket.socket, accepted: float) -> None:
        """Take a connection for the store, which the port of this host has accepted then (monotonic)."""
        if self._certificate is None:
            sock.close()
        else:
            self._peers.admit(sock, self._certificate, accepted)

    def tick(self) -> None:
        """Look for processes that have ended, and for peers that prove or say nothing."""
        self._peers.tick()
        self._links.tick()
        self.imports.tick()
        self._deliveries.tick()
        alone = self.registry.processes() - self._peers.pids()
        self._starts = {pid: start for pid, start in self._starts.items() if pid in alone}
        for pid in alone:
            if pid < 0 or not self._lives(pid):
                self.registry.ended(pid)

    def _lives(self, pid: int) -> bool:
        """Whether a process without a connection is still the one that it was at the first look."""
        try:
            start = start_of(pid)
        except OSError:
            return True  # without a look-up it must not count as ended
        return start != 0 and self._starts.setdefault(pid, start) == start

    @property
    def sent(self) -> int:
        """Return how many bytes other machines were sent."""
        return self._peers.sent

    def close(self) -> None:
        """Stop listening, and close the files."""
        self._links.close()
        for chunk in self.registry.chunks():
            os.close(chunk.descriptor)
        self._peers.close()

    def _from_process(self, peer: Peer, incoming: Incoming[messages.FromProcess]) -> None:
        match incoming.message:
            case messages.LetGo(segments=segments):
                self._let_go(segments, peer.pid)
            case messages.Share():
                self._on_share(peer, incoming.message)
            case messages.Give(segments=segments, to=pids):
                for segment in segments:
                    self.registry.give(segment, pids)
            case messages.Take():
                self._on_take(peer, incoming.message)
            case messages.Grant():
                self._on_grant(peer, incoming.message)
            case messages.GiveBack(size=size):
                self.registry.grant(peer.pid, -size, 0)
            case messages.Publish():
                self._on_publish(peer, incoming.message, incoming.descriptors)
            case messages.Fetch():
                self._on_fetch(peer, incoming.message)
            case messages.Import(id=number, loan=loan):
                self._import(peer, number, loan, [peer.pid])
            case messages.Deliver(id=number, loans=loans, to=hosts):
                self._deliveries.begin(number, loans, hosts, lambda answer: self._peers.answer(peer, answer))
            case messages.Withdraw(segments=segments):
                for segment in segments:
                    self.registry.withdraw(segment)
            case messages.TakeBack(segments=segments, pids=pids):
                self._take_back(segments, pids)
            case messages.Recall(segments=segments, to=hosts):
                self._deliveries.recall(segments, hosts)

    def _from_store(self, peer: Peer, message: messages.FromStore) -> None:
        """The store of another machine has said something."""
        match message:
            case messages.LetGo(segments=segments):
                peer.exports.cancel(segments)
                for segment in segments:
                    self._chains.leave(segment, peer.pid)
                    if self.registry.holds(segment, peer.pid):  # what it held by an earlier connection ended with that
                        self.registry.let_go(segment, peer.pid)
            case messages.Pull() | messages.Skip():
                self._on_pull(peer, message)
            case messages.Relay():
                self._on_relay(peer, message)
            case messages.Offer(id=number, loan=loan, pids=pids):
                self._import(peer, number, loan, pids)
            case messages.TakeBack(segments=segments, pids=pids):
                self._take_back(segments, pids)

    def _let_go(self, segments: Sequence[int], holder: int) -> None:
        for segment in segments:
            self.registry.let_go(segment, holder)

    def _take_back(self, segments: Sequence[int], pids: Sequence[int]) -> None:
        for pid in pids:
            self._let_go(segments, pid)

    def _on_publish(self, peer: Peer, message: messages.Publish, descriptors: list[int]) -> None:
        if not descriptors:
            peer.stream.queue(Refusal(message.id, _NO_DESCRIPTOR))
            return
        chunk = message.chunk
        if self.registry.chunk(chunk) is not None:
            raise ValueError(f"chunk {chunk} already exists")
        (descriptor,) = descriptors
        descriptors.clear()  # kept
        self.registry.add_chunk(Chunk(chunk, peer.pid, message.size, descriptor))
        peer.stream.queue(messages.Published(message.id))

    def _on_grant(self, peer: Peer, message: messages.Grant) -> None:
        try:
            self.registry.grant(peer.pid, message.size, free_memory() - _SPARE)
        except (MeshError, OSError) as error:  # or how much is free cannot be read
            peer.stream.queue(messages.refusal_of(message.id, error))
        else:
            peer.stream.queue(messages.Granted(message.id, message.size))

    def _on_share(self, peer: Peer, message: messages.Share) -> None:
        chunk, kind, site, disk = message.chunk, message.kind, message.site, message.disk
        segment = Segment(message.segment, peer.pid, chunk, message.start, message.size, kind, site, disk=disk)
        self.registry.share(segment, message.to)

    def _on_take(self, peer: Peer, message: messages.Take) -> None:
        self._taken(peer, message, lambda segment: messages.Taken(message.id, segment.id))

    def _on_pull(self, peer: Peer, message: messages.Pull | messages.Skip) -> None:
        """The store of another machine fetches a segment of this one: from here, or from a host that does already."""
        start, holds = 0, False
        if isinstance(message, messages.Skip):
            start = message.start
            holds = self._chains.has(message.segment, peer.pid)  # unless its connection was lost meanwhile

        def found(segment: Segment) -> messages.Found:
            if isinstance(message, messages.Skip):
                source = self._chains.skip(segment.id, peer.pid, peer.host, message.without)
            else:
                source = self._chains.join(segment.id, peer.pid, peer.host)
            if source is None:
                self._export(peer, message.id, segment, start, message.size)
            return messages.Found(message.id, segment.kind, segment.site, source)

        self._taken(peer, message, found, holds=holds)

    def _export(self, peer: Peer, number: int, segment: Segment, start: int, size: int) -> None:
        chunk = self.registry.chunk(segment.chunk)
        if chunk is not None:
            source = Source(chunk.descriptor, segment.start, segment.size)
            peer.exports.begin(number, segment.id, source, start, min(size, segment.size))

    def _on_relay(self, peer: Peer, message: messages.Relay) -> None:
        """The store of another machine fetches a segment that comes, or has come, from a third one."""
        segment, coming = self.registry.segment(message.segment), self.imports.coming(message.segment)
        if segment is not None:
            self._export(peer, message.id, segment, message.start, message.size)
            answer = messages.Found(message.id, segment.kind, segment.site)
        elif coming is not None:
            found, source, size = coming
            peer.exports.begin(message.id, message.segment, source, message.start, min(message.size, size))
            answer = messages.Found(message.id, found.kind, found.site)
        else:
            self._peers.answer(peer, Refusal(message.id, "the data is not on this host"))
            return
        self.registry.give(message.segment, [peer.pid])
        self._peers.answer(peer, answer)

    def _failed(self, segment: int, why: str) -> None:
        """What comes from another machine comes no more: hosts that it was sent on to are told."""
        for number in self._peers.failed(segment, why):
            self.registry.let_go(segment, number)

    def _ended(self, number: int) -> None:
        """The store of another machine is lost."""
        self._chains.ended(number)
        self.registry.ended(number)

    def _taken(
        self,
        peer: Peer,
        message: messages.Take | messages.Pull | messages.Skip,
        answer: Callable[[Segment], messages.Taken | messages.Found],
        unread: list[tuple[Peer, int]] | None = None,
        *,
        holds: bool = False,
    ) -> None:
        """A peer holds a segment once more.

        Args:
            answer: Returns the answer to it.
            unread: The messages that were not read at the first search.
            holds: It does so already.
        """
        if unread is not None:
            self._peers.catch_up(unread)
        if not self._peers.connected(peer):
            return
        segment = self.registry.segment(message.segment)
        if segment is None and unread is None:
            # Its sender has shared it before the message was sent that brought the taker here. So it is at a socket
            # here, but maybe not at one that was found ready when this one was, nor where the next read of it ends.
            found = self._peers.unread()
            self._later(0.0, lambda: self._taken(peer, message, answer, found, holds=holds))
        elif segment is None:
            self._peers.answer(peer, Refusal(message.id, "released: no process holds it any more"))
        else:
            if not holds:
                self.registry.give(segment.id, [peer.pid])
            self._peers.answer(peer, answer(segment))

    def _import(self, peer: Peer, number: int, loan: Loan, pids: Sequence[int]) -> None:
        try:
            self.imports.begin(number, loan, lambda answer: self._peers.answer(peer, answer), pids)
        except (MeshError, OSError) as error:
            self._peers.answer(peer, messages.refusal_of(number, error))

    def _on_fetch(self, peer: Peer, message: messages.Fetch) -> None:
        chunk = self.registry.chunk(message.chunk)
        if chunk is None:
            peer.stream.queue(Refusal(message.id, "its memory was released"))
            return
        try:
            peer.stream.queue_with(messages.Fetched(message.id, chunk.size), [chunk.descriptor])
        except OSError:
            peer.stream.queue(Refusal(message.id, _NO_DESCRIPTOR))
        else:
            chunk.readers.add(peer.pid)

    def _freed(self, owner: int, segment: int) -> None:
        self._peers.tell(owner, messages.Freed([segment]))

    def _drop(self, chunk: Chunk) -> None:
        os.close(chunk.descriptor)
        for reader in chunk.readers:
            self._peers.tell(reader, messages.Dropped(chunk.id))
        self.imports.dropped(chunk.id)

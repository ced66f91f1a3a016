"""The store of one host: it listens in the host agent, and knows who holds what (`meshrt.store.registry`).

It keeps a descriptor of every chunk, so that what a process has written outlives it for as long as somebody holds it.
Nothing here waits for a process.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from meshrt.errors import MeshError, StoreFull
from meshrt.store.deliveries import Deliveries
from meshrt.store.hostlinks import HostLinks
from meshrt.store.imports import Imports
from meshrt.store.lease import Loan
from meshrt.store.limits import free_memory
from meshrt.store.machine import machine_of
from meshrt.store.peers import Peer, Peers
from meshrt.store.protocol import FROM_PROCESS, FROM_STORE, Host, store_path
from meshrt.store.registry import Registry, Segment
from meshrt.transport.kernel import start_of
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import check_control, why_of

__all__ = ["StoreServer"]

#: Memory that is left to the rest of the host, bytes.
_SPARE = 64 << 20
#: The kernel has none beyond.
_PID_MAX = 1 << 22
_NO_DESCRIPTOR = "the host agent has no file descriptor left (see ulimit -n)"
#: Bytes; no machine has as many.
_LARGEST = 1 << 60


@dataclass(eq=False)
class _File:
    """A chunk, as it is handed out."""

    chunk: int
    descriptor: int
    readers: set[int] = field(default_factory=set)
    #: The segment that it is, if it was fetched from another machine, and what memory was granted for it.
    imported: tuple[int, int] | None = None


class StoreServer:
    """Listens at `store_path`. One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        directory: The runtime directory of the program.
        run_directory: Where goes what is fetched and has no room in memory.
        secret: What processes prove.
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
            self._links, run_directory, own, self.registry, self._arrived, lambda: free_memory() - _SPARE
        )
        self._deliveries = Deliveries(self._links)
        self._handlers: dict[str, Callable[[Peer, dict[str, Any]], None]] = {
            "chunk": self._on_chunk,
            "grant": self._on_grant,
            "lend": self._on_lend,
            "give": self._on_give,
            "take": self._on_take,
            "let_go": self._on_let_go,
            "withdraw": self._on_withdraw,
            "fetch": self._on_fetch,
            "import": self._on_import,
            "send": self._on_send,
            "recall": self._on_recall,
            "take_back": self._on_take_back,
        }
        #: What the store of another machine may say.
        self._from_hosts: dict[str, Callable[[Peer, dict[str, Any]], None]] = {
            "pull": self._on_pull,
            "let_go": self._on_let_go,
            "offer": self._on_offer,
            "recall": self._on_recalled,
        }
        #: When processes without a connection were started: their pids may be given to others.
        self._starts: dict[int, int] = {}
        path = store_path(directory, os.getpid())
        self._peers = Peers(selector, path, secret, own, self._heard, self.registry.ended, later)

    def tick(self) -> None:
        """Look for processes that have ended, and for peers that prove or say nothing."""
        self._peers.tick()
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
            return True  # who cannot look must not say that it has ended
        return start != 0 and self._starts.setdefault(pid, start) == start

    @property
    def sent(self) -> int:
        """Return how many bytes other machines were sent."""
        return self._peers.sent

    def close(self) -> None:
        """Listen no more, and let go of the files."""
        self._links.close()
        for file in self.registry.handles():
            os.close(file.descriptor)
        self._peers.close()

    def _heard(self, peer: Peer, message: dict[str, Any]) -> None:
        handlers = self._handlers if peer.pid > 0 else self._from_hosts
        check_control(message, FROM_PROCESS if peer.pid > 0 else FROM_STORE)
        handlers[message["t"]](peer, message)

    def _on_chunk(self, peer: Peer, message: dict[str, Any]) -> None:
        if not message["descriptors"]:
            peer.stream.queue({"t": "no", "n": message["n"], "why": _NO_DESCRIPTOR})
            return
        if self.registry.chunk(message["id"]) is not None:
            raise ValueError(f"chunk {message['id']} is there already")
        (descriptor,) = message["descriptors"]
        message["descriptors"].clear()  # kept
        self.registry.add_chunk(peer.pid, message["id"], message["size"], _File(message["id"], descriptor))
        peer.stream.queue({"t": "ok", "n": message["n"]})

    def _on_grant(self, peer: Peer, message: dict[str, Any]) -> None:
        if message["size"] <= 0:
            self.registry.grant(peer.pid, message["size"], 0)
            return
        try:
            self.registry.grant(peer.pid, message["size"], free_memory() - _SPARE)
        except MeshError as error:
            peer.stream.queue({"t": "no", "n": message["n"], "why": why_of(error), **_facts_of(error)})
        else:
            peer.stream.queue({"t": "ok", "n": message["n"], "granted": message["size"]})

    def _on_lend(self, peer: Peer, message: dict[str, Any]) -> None:
        number, chunk, start, size = (message[name] for name in ("segment", "chunk", "start", "size"))
        kind, site, disk = message["kind"], message["site"], bool(message["disk"])
        segment = Segment(number, peer.pid, chunk, start, size, kind, site, disk=disk)
        self.registry.lend(segment, _pids(message["to"]))

    def _on_give(self, _peer: Peer, message: dict[str, Any]) -> None:
        pids = _pids(message["to"])
        for segment in message["segments"]:
            self.registry.give(segment, pids)

    def _on_take(self, peer: Peer, message: dict[str, Any]) -> None:
        self._taken(peer, message, lambda _segment: {"taken": message["segment"]})

    def _on_pull(self, peer: Peer, message: dict[str, Any]) -> None:
        number, size = message["n"], message["size"]
        if not 0 < size < _LARGEST:
            raise ValueError(f"{size} bytes are wanted")

        def facts(segment: Segment) -> dict[str, Any]:
            found = self.registry.chunk(segment.chunk)
            if found is not None:
                peer.exports.begin(number, segment.id, found[1].descriptor, segment.start, min(size, segment.size))
            return {"kind": segment.kind, "site": segment.site}

        self._taken(peer, message, facts)

    def _taken(
        self,
        peer: Peer,
        message: dict[str, Any],
        facts: Callable[[Segment], dict[str, Any]],
        unread: list[tuple[Peer, int]] | None = None,
    ) -> None:
        """A peer holds a segment once more, and is told ``facts`` of it.

        Args:
            unread: What was not read when it was first looked for.
        """
        if unread is not None:
            self._peers.catch_up(unread)
        if not self._peers.connected(peer):
            return
        segment = self.registry.segment(message["segment"])
        if segment is None and unread is None:
            # Its sender has lent it before the message was sent that brought the taker here. So it is at a socket here,
            # but maybe not at one that was found ready when this one was, nor where the next read of it ends.
            found = self._peers.unread()
            self._later(0.0, lambda: self._taken(peer, message, facts, found))
        elif segment is None:
            self._answer(peer, message["n"], {"t": "no", "why": "nobody holds it any more"})
        else:
            self.registry.take(segment.id, peer.pid)
            self._answer(peer, message["n"], facts(segment))

    def _answer(self, peer: Peer, number: int, body: dict[str, Any]) -> bool:
        """Returns whether its connection is there: if it is lost, what it was given it holds until it ends."""
        return self._peers.answer(peer, {"t": "ok", **body, "n": number})

    def _on_import(self, peer: Peer, message: dict[str, Any]) -> None:
        self._import(peer, message["n"], _loan(message["loan"]), [peer.pid])

    def _on_offer(self, peer: Peer, message: dict[str, Any]) -> None:
        self._import(peer, message["n"], _loan(message["loan"]), _pids(message["pids"]))

    def _import(self, peer: Peer, number: int, loan: Loan, pids: list[int]) -> None:
        try:
            self.imports.begin(loan, lambda body: self._answer(peer, number, body), pids)
        except (MeshError, OSError) as error:
            self._answer(peer, number, {"t": "no", "why": why_of(error), **_facts_of(error)})

    def _on_send(self, peer: Peer, message: dict[str, Any]) -> None:
        number, loans = message["n"], [_loan(loan) for loan in message["loans"]]
        self._deliveries.begin(loans, _hosts(message["to"]), lambda body: self._answer(peer, number, body))

    def _on_recall(self, _peer: Peer, message: dict[str, Any]) -> None:
        self._deliveries.recall(_numbers(message["segments"]), _hosts(message["to"]))

    def _on_recalled(self, _peer: Peer, message: dict[str, Any]) -> None:
        self._not_sent(_numbers(message["segments"]), _pids(message["pids"]))

    def _on_take_back(self, _peer: Peer, message: dict[str, Any]) -> None:
        self._not_sent(_numbers(message["segments"]), _pids(message["to"]))

    def _not_sent(self, segments: list[int], pids: list[int]) -> None:
        for segment in segments:
            for pid in pids:
                self.registry.let_go(segment, pid)

    def _arrived(self, chunk: int, descriptor: int, size: int, segment: int, granted: int) -> None:
        file = _File(chunk, descriptor, imported=(segment, granted))
        self.registry.add_chunk(os.getpid(), chunk, size, file, orphan=True)

    def _on_let_go(self, peer: Peer, message: dict[str, Any]) -> None:
        peer.exports.cancel(message["segments"])
        for segment in message["segments"]:
            self.registry.let_go(segment, peer.pid)

    def _on_withdraw(self, _peer: Peer, message: dict[str, Any]) -> None:
        for segment in message["segments"]:
            self.registry.withdraw(segment)

    def _on_fetch(self, peer: Peer, message: dict[str, Any]) -> None:
        found = self.registry.chunk(message["chunk"])
        if found is None:
            peer.stream.queue({"t": "no", "n": message["n"], "why": "its memory was given back"})
        else:
            size, file = found
            try:
                peer.stream.queue({"t": "ok", "n": message["n"], "size": size}, [file.descriptor])
            except OSError:
                peer.stream.queue({"t": "no", "n": message["n"], "why": _NO_DESCRIPTOR})
            else:
                file.readers.add(peer.pid)

    def _freed(self, owner: int, segment: int) -> None:
        self._peers.tell(owner, {"t": "freed", "segments": [segment]})

    def _drop(self, file: _File) -> None:
        os.close(file.descriptor)
        for reader in file.readers:
            self._peers.tell(reader, {"t": "dropped", "chunk": file.chunk})
        if file.imported is not None:
            self.imports.dropped(*file.imported)


def _facts_of(error: Exception) -> dict[str, Any]:
    """Return what the error is made of at the other end, if it is that there is no room."""
    names = ("size", "limit", "used", "what")
    return {"facts": [getattr(error, name) for name in names]} if isinstance(error, StoreFull) else {}


def _loan(sent: Any) -> Loan:
    loan = Loan(*_numbers(sent))
    if not 0 < loan.size < _LARGEST:
        raise ValueError(f"{loan} is no loan")
    return loan


def _hosts(sent: Any) -> list[Host]:
    hosts = [Host(machine, agent_pid, _pids(pids)) for machine, agent_pid, pids in sent]
    _numbers([number for host in hosts for number in host[:2]])
    return hosts


def _numbers(sent: Any) -> list[int]:
    numbers = list(sent)
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"{numbers} are no numbers")
    return numbers


def _pids(sent: Any) -> list[int]:
    pids = _numbers(sent)
    if not all(0 < pid < _PID_MAX for pid in pids):
        raise ValueError(f"{pids} are no pids")
    return pids

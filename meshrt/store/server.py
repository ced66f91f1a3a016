"""The store of one host: it listens in the host agent, and knows who holds what (`meshrt.store.registry`).

It keeps a descriptor of every chunk, so that what a process has written outlives it for as long as somebody holds it.
Nothing here waits for a process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from meshrt.errors import MeshError, ProtocolError
from meshrt.store.limits import free_memory
from meshrt.store.protocol import DescriptorStream, store_path
from meshrt.store.registry import Registry, Segment
from meshrt.transport.link import peer_of, same_user
from meshrt.transport.refusals import Refusals
from meshrt.wire.handshake import HANDSHAKE_SECONDS, ROLE_STORE, UNPROVED_MAX, ServerHandshake
from meshrt.wire.messages import why_of

__all__ = ["StoreServer"]

_log = logging.getLogger("meshrt")
#: Memory that is left to the rest of the host, bytes.
_SPARE = 64 << 20
#: The kernel has none beyond.
_PID_MAX = 1 << 22


@dataclass(eq=False)
class _File:
    """A chunk, as it is handed out."""

    chunk: int
    descriptor: int
    readers: set[int] = field(default_factory=set)


@dataclass(eq=False)
class _Peer:
    stream: DescriptorStream
    pid: int
    handshake: ServerHandshake | None
    deadline: float


class StoreServer:
    """Listens at `store_path`. One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        directory: The runtime directory of the program.
        secret: What processes prove.
        limit: Bytes that all processes may have written together.
        later: Calls a function after so many seconds, not before all that is ready now was looked at.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        directory: str,
        secret: bytes,
        limit: int,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._selector = selector
        self._secret = secret
        self._path = store_path(directory, os.getpid())
        self._peers: dict[int, list[_Peer]] = {}
        self._unproved: list[_Peer] = []
        self._later = later
        self._listening = False
        self._refusals = Refusals()
        self.registry = Registry(limit, self._freed, self._drop)
        self._handlers: dict[str, Callable[[_Peer, dict[str, Any]], None]] = {
            "chunk": self._on_chunk,
            "grant": self._on_grant,
            "lend": self._on_lend,
            "give": self._on_give,
            "take": self._on_take,
            "let_go": self._on_let_go,
            "withdraw": self._on_withdraw,
            "fetch": self._on_fetch,
        }
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._path)
        self._listener.listen(4096)
        self._listener.setblocking(False)
        self._listen()

    def tick(self) -> None:
        """Look for processes that have ended, and for peers that prove nothing."""
        self._listen()
        now = time.monotonic()
        for peer in [peer for peer in self._unproved if peer.deadline <= now]:
            self._close(peer)
        for pid in self.registry.processes() - self._peers.keys():
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                self.registry.ended(pid)
            except PermissionError:
                pass  # it lives

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Listen no more, and let go of the files."""
        for file in self.registry.handles():
            os.close(file.descriptor)
        if self._listening:
            self._selector.unregister(self._listener)
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    # -- connections

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            # No descriptor is left: who wants to be let in waits, and nobody spins over it.
            _log.error("a process cannot be let into the store: %s", error.strerror)
            self._selector.unregister(self._listener)
            self._listening = False
            return
        if not same_user(sock):
            sock.close()
            return
        if len(self._unproved) >= UNPROVED_MAX:
            self._close(self._unproved[0])
        sock.setblocking(False)
        handshake = ServerHandshake(self._secret, ROLE_STORE)
        peer = _Peer(DescriptorStream(sock), peer_of(sock)[0], handshake, time.monotonic() + HANDSHAKE_SECONDS)
        self._unproved.append(peer)
        self._selector.register(sock, selectors.EVENT_READ, lambda events: self._on_event(peer, events))

    def _on_event(self, peer: _Peer, events: int) -> None:
        if peer not in self._unproved and peer not in self._peers.get(peer.pid, ()):
            return  # closed since it was found ready
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(peer)
            messages = self._prove(peer, peer.handshake) if peer.handshake is not None else peer.stream.read()
            if messages is None:
                self._close(peer)
                return
            for message in messages:
                self._handlers[message["t"]](peer, message)
            if peer.stream.unsent:
                self._flush(peer)
        except OSError:
            self._close(peer)
        except (ProtocolError, KeyError, TypeError, ValueError, IndexError) as error:
            self._refusals.note(f"process {peer.pid}, at the store,", error)
            self._close(peer)

    def _prove(self, peer: _Peer, handshake: ServerHandshake) -> list[dict[str, Any]] | None:
        data = peer.stream.receive()
        if not data:
            return [] if data is None else None
        answer = handshake.receive_data(data)
        if answer:
            peer.stream.sock.send(answer)
        if not handshake.done:
            return []
        peer.handshake = None
        self._unproved.remove(peer)
        self._peers.setdefault(peer.pid, []).append(peer)
        return peer.stream.feed(handshake.leftover)

    def _flush(self, peer: _Peer) -> None:
        events = selectors.EVENT_READ if peer.stream.flush() else selectors.EVENT_READ | selectors.EVENT_WRITE
        key = self._selector.get_key(peer.stream.sock)
        if key.events != events:
            self._selector.modify(peer.stream.sock, events, key.data)

    def _close(self, peer: _Peer) -> None:
        others = self._peers.get(peer.pid, [])
        if peer in self._unproved:
            self._unproved.remove(peer)
        elif peer in others:
            others.remove(peer)
            if not others:
                del self._peers[peer.pid]
        else:
            return
        self._selector.unregister(peer.stream.sock)
        peer.stream.sock.close()
        for descriptor in peer.stream.descriptors:
            os.close(descriptor)

    # -- messages

    def _on_chunk(self, peer: _Peer, message: dict[str, Any]) -> None:
        if not message["descriptors"]:
            why = "the host agent has no file descriptor left (see ulimit -n)"
            peer.stream.queue({"t": "no", "n": message["n"], "why": why})
            return
        (descriptor,) = message["descriptors"]
        self.registry.add_chunk(peer.pid, message["id"], message["size"], _File(message["id"], descriptor))
        peer.stream.queue({"t": "ok", "n": message["n"]})

    def _on_grant(self, peer: _Peer, message: dict[str, Any]) -> None:
        if message["size"] <= 0:
            self.registry.grant(peer.pid, message["size"], 0)
            return
        try:
            self.registry.grant(peer.pid, message["size"], free_memory() - _SPARE)
        except MeshError as error:
            facts = [getattr(error, name) for name in ("size", "limit", "used", "what")]
            peer.stream.queue({"t": "no", "n": message["n"], "why": why_of(error), "facts": facts})
        else:
            peer.stream.queue({"t": "ok", "n": message["n"], "granted": message["size"]})

    def _on_lend(self, peer: _Peer, message: dict[str, Any]) -> None:
        number, chunk, size = message["segment"], message["chunk"], message["size"]
        segment = Segment(number, peer.pid, chunk, size, message["kind"], message["site"], disk=bool(message["disk"]))
        self.registry.lend(segment, _pids(message))

    def _on_give(self, _peer: _Peer, message: dict[str, Any]) -> None:
        pids = _pids(message)
        for segment in message["segments"]:
            self.registry.give(segment, pids)

    def _on_take(self, peer: _Peer, message: dict[str, Any]) -> None:
        if self.registry.take(message["segment"], peer.pid):
            peer.stream.queue({"t": "ok", "n": message["n"], "taken": message["segment"]})
        else:
            # Its sender has lent it before the message was sent that brought the taker here: it may not be read yet.
            self._later(0.0, lambda: self._take_again(peer, message))

    def _take_again(self, peer: _Peer, message: dict[str, Any]) -> None:
        if peer not in self._peers.get(peer.pid, ()):
            return
        if self.registry.take(message["segment"], peer.pid):
            peer.stream.queue({"t": "ok", "n": message["n"], "taken": message["segment"]})
        else:
            peer.stream.queue({"t": "no", "n": message["n"], "why": "it is gone"})
        try:
            self._flush(peer)
        except OSError:
            self._close(peer)

    def _on_let_go(self, peer: _Peer, message: dict[str, Any]) -> None:
        for segment in message["segments"]:
            self.registry.let_go(segment, peer.pid)

    def _on_withdraw(self, _peer: _Peer, message: dict[str, Any]) -> None:
        for segment in message["segments"]:
            self.registry.withdraw(segment)

    def _on_fetch(self, peer: _Peer, message: dict[str, Any]) -> None:
        found = self.registry.chunk(message["chunk"])
        if found is None:
            peer.stream.queue({"t": "no", "n": message["n"], "why": "its memory was given back"})
        else:
            size, file = found
            file.readers.add(peer.pid)
            peer.stream.queue({"t": "ok", "n": message["n"], "size": size}, [file.descriptor])

    def _freed(self, owner: int, segment: int) -> None:
        self._tell(owner, {"t": "freed", "segments": [segment]})

    def _drop(self, file: _File) -> None:
        os.close(file.descriptor)
        for reader in file.readers:
            self._tell(reader, {"t": "dropped", "chunk": file.chunk})

    def _tell(self, pid: int, message: dict[str, Any]) -> None:
        for peer in self._peers.get(pid, ())[:1]:
            peer.stream.queue(message)
            try:
                self._flush(peer)
            except OSError:
                pass  # it has ended, which its connection tells


def _pids(message: dict[str, Any]) -> list[int]:
    pids = [int(pid) for pid in message["to"]]
    if not all(0 < pid < _PID_MAX for pid in pids):
        raise ValueError(f"{pids} are no pids")
    return pids

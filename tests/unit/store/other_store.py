"""The store of another machine, as a test plays it: it listens, proves itself, hears and says what the test wants."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshrt.store.messages import FROM_STORE, FromStore, Piece, ToStore
from meshrt.store.protocol import DescriptorStream, queue_piece, store_path
from meshrt.wire.handshake import ROLE_STORE, Identity, ServerHandshake
from tests.support.control import raw_frame

__all__ = ["SECRET", "OtherStore", "serve"]

SECRET = b"s" * 32


def serve(selector: selectors.BaseSelector) -> None:
    """Do what there is to do for the store that is tried."""
    while ready := selector.select(0):
        for key, events in ready:
            key.data(events)


class OtherStore:
    """One connection of the store that is tried, whose selector this is."""

    def __init__(self, selector: selectors.BaseSelector, folder: Path, machine: int, agent_pid: int) -> None:
        self.identity = Identity(machine, agent_pid, agent_pid)
        #: Who has connected.
        self.client: Identity | None = None
        self._selector = selector
        self._stream: DescriptorStream | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(store_path(str(folder), agent_pid))
        self._listener.listen()

    def accept(self) -> list[FromStore]:
        """Be dialled, maybe anew, and prove to be that store. Returns what is said there."""
        if self._stream is not None:
            self._stream.sock.close()
        sock, _ = self._listener.accept()
        handshake = ServerHandshake(SECRET, ROLE_STORE, self.identity)
        sock.sendall(handshake.receive_data(sock.recv(256)))
        serve(self._selector)
        while not handshake.done:
            sock.sendall(handshake.receive_data(sock.recv(4096)))
        self.client = handshake.client
        sock.setblocking(False)
        self._stream = DescriptorStream(sock)
        return self.hear()

    def refuse(self) -> None:
        """Be dialled, and hang up at once."""
        self._listener.accept()[0].close()
        serve(self._selector)

    def hear(self) -> list[FromStore]:
        """Return what was said there since."""
        serve(self._selector)
        assert self._stream is not None
        return [message for message, _ in self._stream.read(FROM_STORE) or []]

    def say(self, *messages: ToStore | Piece | Mapping[str, Any]) -> None:
        """Say this, which may be no message, to the store that is tried, which reads all of it."""
        assert self._stream is not None
        for message in messages:
            if isinstance(message, Mapping):
                self._stream.unsent.append((memoryview(raw_frame(message)), []))
            elif isinstance(message, Piece):
                queue_piece(self._stream, message)
            else:
                self._stream.queue(message)
            while not self._stream.flush():
                serve(self._selector)
        serve(self._selector)

    def hang_up(self) -> None:
        """End the connection."""
        assert self._stream is not None
        self._stream.sock.close()
        serve(self._selector)

    def close(self) -> None:
        """End, like its host."""
        self._listener.close()
        if self._stream is not None:
            self._stream.sock.close()

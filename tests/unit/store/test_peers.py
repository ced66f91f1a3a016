"""The connections of a store: which descriptors are open in its process because a peer has sent them."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import ProtocolError
from meshrt.store.dialling import knock
from meshrt.store.peers import Peer, Peers
from meshrt.store.protocol import DescriptorStream
from meshrt.wire.handshake import MAGIC, UNPROVED_MAX, Identity
from meshrt.wire.messages import control_frame
from tests.unit.store.other_store import SECRET, serve

OWN = Identity(1, os.getpid(), os.getpid())


class Store:
    """A store that keeps the descriptors of the messages that say so."""

    def __init__(self, folder: Path) -> None:
        self.selector = selectors.DefaultSelector()
        self.path = str(folder / "store")
        self.heard: list[dict[str, Any]] = []
        self.kept: list[int] = []
        self.peers = Peers(
            self.selector, self.path, SECRET, OWN, self._hear, lambda _number: None, lambda _seconds, _action: None
        )

    def _hear(self, _peer: Peer, message: dict[str, Any]) -> None:
        self.heard.append(message)
        if message["t"] == "keep":
            self.kept += message["descriptors"]
            message["descriptors"].clear()
        if message["t"] == "nonsense":
            raise ValueError("nonsense")

    def serve(self) -> None:
        serve(self.selector)

    def close(self) -> None:
        self.peers.close()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()
        for descriptor in self.kept:
            os.close(descriptor)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    made.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def proved(store: Store, machine: int = OWN.machine) -> socket.socket:
    """Return a connection that the store has let in."""
    sock, handshake = knock(store.path, SECRET, OWN._replace(machine=machine), 10.0)
    while not handshake.done:
        store.serve()
        sock.sendall(handshake.receive_data(sock.recv(256)))
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Whether the store has hung up."""
    sock.setblocking(False)
    try:
        return not sock.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True  # with what it has not read


@pytest.mark.row("N10")
def test_no_descriptor_is_received_before_the_proof(store: Store) -> None:
    """Sixty connections that prove nothing take sixty descriptors, whatever they attach."""
    before = open_descriptors()
    socks = []
    for _ in range(UNPROVED_MAX - 4):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(store.path)
        socks.append(sock)
        for byte in MAGIC:
            socket.send_fds(sock, [bytes([byte])], [0] * 16)
    store.serve()
    assert open_descriptors() - before == 2 * len(socks), "each connection has two ends in this process"
    for sock in socks:
        sock.close()
    store.serve()
    assert open_descriptors() == before


@pytest.mark.row("N10")
def test_the_oldest_of_too_many_that_prove_nothing_is_dropped(store: Store) -> None:
    before = open_descriptors()
    socks = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2 * UNPROVED_MAX)]
    for sock in socks:
        sock.connect(store.path)
        store.serve()
    assert [is_closed(sock) for sock in socks] == [True] * UNPROVED_MAX + [False] * UNPROVED_MAX
    for sock in socks:
        sock.close()
    store.serve()
    assert open_descriptors() == before


def test_what_no_message_claims_ends_the_connection(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    socket.send_fds(sock, [control_frame({"t": "keep", "fds": 1})], [0, 0])
    store.serve()
    assert is_closed(sock) and store.heard == []
    sock.close()
    assert open_descriptors() == before - 2


def test_parts_of_a_message_bring_no_more_descriptors_than_one_read(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    frame = control_frame({"t": "keep", "fds": 16, "text": "x" * 100})
    for start in range(20):
        with contextlib.suppress(ConnectionError):
            socket.send_fds(sock, [frame[start : start + 1]], [0] * 16)
        store.serve()
        assert open_descriptors() <= before + 16
    assert is_closed(sock)
    sock.close()


def test_a_handler_that_keeps_none_leaves_none_open(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    for _ in range(3):
        socket.send_fds(sock, [control_frame({"t": "let_go", "fds": 3})], [0, 0, 0])
    store.serve()
    assert len(store.heard) == 3 and open_descriptors() == before
    socket.send_fds(sock, [control_frame({"t": "keep", "fds": 1})], [0])
    store.serve()
    assert len(store.kept) == 1 and open_descriptors() == before + 1
    sock.close()


def test_a_message_that_is_nonsense_leaves_none_open(store: Store) -> None:
    sock = proved(store)
    before = open_descriptors()
    frames = [control_frame({"t": name, "fds": 1}) for name in ("nonsense", "keep")]
    socket.send_fds(sock, [frames[0]], [0])
    socket.send_fds(sock, [frames[1]], [0])
    store.serve()
    assert is_closed(sock) and store.kept == []
    sock.close()
    assert open_descriptors() == before - 2


def test_a_store_of_another_machine_brings_none(store: Store) -> None:
    sock = proved(store, machine=OWN.machine + 1)
    before = open_descriptors()
    socket.send_fds(sock, [control_frame({"t": "let_go", "fds": 1})], [0])
    store.serve()
    assert [message["descriptors"] for message in store.heard] == [[]] and open_descriptors() == before
    sock.close()


def test_messages_before_foreign_bytes_leave_none_open() -> None:
    ours, theirs = socket.socketpair()
    stream = DescriptorStream(ours)
    before = open_descriptors()
    # The second message cannot be read when the first one has been.
    broken = control_frame({"t": "keep"}).replace(b"keep", b"\xff" * 4)
    socket.send_fds(theirs, [control_frame({"t": "keep", "fds": 1}) + broken], [0])
    with pytest.raises(ProtocolError):
        stream.read()
    stream.close()
    theirs.close()
    assert open_descriptors() == before - 2

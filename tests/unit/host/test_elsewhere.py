"""The port of a host: it proves itself, passes connections on, and has ranks connect by those that it makes."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.files import RUNTIME_FILES
from meshrt.host.elsewhere import Doors, search_path
from meshrt.store.machine import machine_of
from meshrt.transport.dataport import ACCEPTED, BIND
from meshrt.wire.handshake import Secret
from meshrt.wire.preface import host_name, host_proof, preface
from meshrt.wire.tree import Dial

SECRET = Secret(b"s" * 32)


class Bench:
    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.selector = selectors.DefaultSelector()
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(20)
        self.peers: list[socket.socket] = []
        self.stores: list[socket.socket] = []
        children: Any = {("m", 3): SimpleNamespace(door=theirs)}
        self.door = theirs
        self.doors = Doors(
            self.selector,
            children,
            4711,
            SECRET,
            lambda sock, _accepted: self.stores.append(sock),
            lambda _seconds, _function: None,
        )

    def turn(self) -> None:
        while ready := self.selector.select(0.05):
            for key, events in ready:
                key.data(events)

    def dial(self, name: str) -> socket.socket:
        sock = socket.create_connection(self.doors.ports[0])
        self.peers.append(sock)
        sock.settimeout(20)
        sock.sendall(preface(name))
        self.turn()
        return sock

    def given(self) -> socket.socket:
        """Return the connection that the rank was given."""
        data, descriptors, _, _ = socket.recv_fds(self.ours, ACCEPTED.size, 1)
        (accepted,) = ACCEPTED.unpack(data)
        assert self.begun <= accepted <= time.monotonic()
        sock = socket.socket(fileno=descriptors[0])
        sock.settimeout(20)
        return sock

    def close(self) -> None:
        for key in tuple(self.selector.get_map().values()):
            self.selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()
        for peer in self.peers:
            peer.close()
        self.ours.close()
        self.door.close()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv(BIND, "127.0.0.1")
    made = Bench()
    yield made
    made.close()


def test_it_proves_itself_and_no_other_host(bench: Bench) -> None:
    name = host_name(machine_of(4711), 4711) + "nonce"
    assert bench.dial(name).recv(100) == host_proof(SECRET, name)
    assert bench.dial(host_name(machine_of(4711), 4712) + "nonce").recv(100) == b""


def test_a_connection_for_a_rank_is_passed_on(bench: Bench) -> None:
    peer = bench.dial("rank/m/3")
    peer.sendall(b"hello")
    with bench.given() as sock:
        assert sock.recv(100) == b"hello"
    assert bench.dial("rank/m/4").recv(1) == b""


def test_it_dials_for_a_rank(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as root:
        bench.doors.dial(Dial("rank/m/3", root.getsockname(), "relay/abc"))
        bench.turn()
        peer, _ = root.accept()
        peer.settimeout(20)
    assert peer.recv(100) == preface("relay/abc")
    with bench.given() as sock:
        peer.sendall(b"hello")
        assert sock.recv(100) == b"hello"
    peer.close()


def test_it_dials_for_its_store(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as root:
        bench.doors.dial(Dial("store", root.getsockname(), "relay/abc"))
        bench.turn()
        peer, _ = root.accept()
        peer.settimeout(20)
    assert peer.recv(100) == preface("relay/abc")
    (sock,) = bench.stores
    sock.send(b"hello")
    assert peer.recv(100) == b"hello"
    sock.close()
    peer.close()


def test_what_cannot_be_dialled_is_given_up(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()
    bench.doors.dial(Dial("rank/m/3", port, "relay/abc"))
    bench.turn()
    bench.ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        bench.ours.recv(1)


def test_libraries_are_those_of_the_machine_and_the_package_of_the_agent_is_the_last_of_them() -> None:
    own = os.path.dirname(os.path.dirname(RUNTIME_FILES))
    given = [b"/script", b"", b"/checkout"]
    expected = ["/script", "/usr/lib/python3", "/venv/site-packages", own, "/checkout"]
    assert search_path(given, [own, "/usr/lib/python3", "/venv/site-packages"]) == expected
    assert search_path([b"/script", b"/usr/lib"], ["/other"]) == ["/script", "/usr/lib"]

"""Connections at the port of a host: given away by what they ask for, or closed."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import psutil
import pytest

from meshrt.errors import UsageError
from meshrt.transport.acceptor import SelectorReaders
from meshrt.transport.dataport import BIND, PORTS, DataPort, listen
from meshrt.wire.handshake import HELLO_SECONDS, UNPROVED_MAX
from meshrt.wire.preface import preface


class Bench:
    """A port whose readers and timers are driven by hand."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.given: list[tuple[str, socket.socket]] = []
        self.later: list[Callable[[], None]] = []
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self.port = DataPort(
            SelectorReaders(self.selector),
            listener,
            self._give,
            lambda _seconds, function: self.later.append(function),
        )
        self.peers: list[socket.socket] = []

    def _give(self, name: str, sock: socket.socket, accepted: float) -> None:
        assert 0 <= time.monotonic() - accepted < HELLO_SECONDS
        self.given.append((name, sock))

    def dial(self, data: bytes = b"") -> socket.socket:
        self.peers.append(socket.create_connection(self.address))
        self.peers[-1].sendall(data)
        self.turn()
        return self.peers[-1]

    def turn(self) -> None:
        """Serve what is ready, and what becomes ready by that."""
        while ready := self.selector.select(0.05):
            for key, events in ready:
                key.data(events)

    def close(self) -> None:
        self.port.close()
        for sock in (*self.peers, *(sock for _, sock in self.given)):
            sock.close()
        self.selector.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def closed(peer: socket.socket) -> bool:
    peer.settimeout(5)
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_goes_where_it_asks_to_with_all_that_follows(bench: Bench) -> None:
    bench.dial(preface("rank/abc/3") + b"hello")
    ((name, sock),) = bench.given
    assert (name, sock.recv(100)) == ("rank/abc/3", b"hello")


def test_it_may_come_in_pieces(bench: Bench) -> None:
    data = preface("store")
    peer = bench.dial(data[:3])
    assert bench.given == []
    peer.sendall(data[3:])
    bench.turn()
    assert [name for name, _ in bench.given] == ["store"]


def test_foreign_bytes_and_those_who_leave_are_closed(bench: Bench) -> None:
    assert closed(bench.dial(b"GET / HTTP/1.1\r\n\r\n"))
    bench.dial().close()
    bench.turn()
    assert bench.given == []


def test_who_says_nothing_has_a_few_seconds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = bench.dial()
    bench.later.pop()()
    silent.setblocking(False)
    with pytest.raises(BlockingIOError):
        silent.recv(1)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + HELLO_SECONDS)
    bench.later.pop()()
    assert closed(silent) and not bench.later


def test_of_too_many_that_are_silent_the_oldest_goes(bench: Bench) -> None:
    oldest = bench.dial()
    for _ in range(UNPROVED_MAX):
        bench.dial()
    assert closed(oldest)


def test_the_address_and_the_ports_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BIND, "127.0.0.1")
    listener, addresses = listen()
    with listener:
        port = listener.getsockname()[1]
        assert addresses == (("127.0.0.1", port),)
        monkeypatch.setenv(PORTS, f"{port}-{port + 20}")
        other, addresses = listen()
        with other:
            assert port < addresses[0][1] <= port + 20
        monkeypatch.setenv(PORTS, str(port))
        with pytest.raises(OSError, match="in use"):
            listen()


@pytest.mark.parametrize("text", ["x", "1-", "0", "70000", "20-10", "-5"])
def test_what_is_no_range_of_ports(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS, text)
    with pytest.raises(UsageError, match="expected for example 40000-40100"):
        listen()


def test_addresses_that_others_may_know_this_machine_by() -> None:
    listener, addresses = listen()
    with listener:
        assert all(not address.startswith("127.") and address != "::1" for address, _ in addresses)


#: By label: an alias is no interface of its own.
INTERFACES = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.1", "fd00::1", "fe80::1%eth0"], "eth0:1": ["10.0.0.2"]}
DOWN = {"eth1": ["10.0.0.3"]}


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What psutil finds; a test may change it."""
    made = {**INTERFACES, **DOWN}

    def addresses() -> dict[str, list[SimpleNamespace]]:
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return {
            label: [SimpleNamespace(family=families[":" in each], address=each) for each in found]
            for label, found in made.items()
        }

    def stats() -> dict[str, SimpleNamespace]:
        return {name: SimpleNamespace(isup=name not in DOWN) for name in made if ":" not in name}

    monkeypatch.setattr(psutil, "net_if_addrs", addresses)
    monkeypatch.setattr(psutil, "net_if_stats", stats)
    return made


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ("", ["10.0.0.1", "10.0.0.2", "fd00::1"]),
        ("0.0.0.0", ["10.0.0.1", "10.0.0.2"]),
        ("::", ["fd00::1"]),
        ("127.0.0.1", ["127.0.0.1"]),
    ],
)
def test_what_is_offered(
    bind: str, expected: list[str], interfaces: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BIND, bind)
    listener, addresses = listen()
    with listener:
        assert addresses == tuple((each, listener.getsockname()[1]) for each in expected)
        assert listener.getsockname()[0] == (bind or "::")


@pytest.mark.parametrize(("bind", "expected"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_without_a_network_loopback_is_offered(
    bind: str, expected: str, interfaces: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    interfaces.clear()
    monkeypatch.setenv(BIND, bind)
    listener, addresses = listen()
    with listener:
        assert addresses == ((expected, listener.getsockname()[1]),)

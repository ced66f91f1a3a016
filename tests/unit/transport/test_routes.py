"""Which address of a host is taken: the one at which it proves itself."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from meshrt.transport import routes as routes_module
from meshrt.transport.connecting import Connector, Opened
from meshrt.transport.routes import Routes
from meshrt.wire.addresses import HostAddress, Port, RankAddress
from meshrt.wire.preface import PrefaceReader, host_name, host_proof
from tests.support.waiting import wait_until

SECRET = b"s" * 32


class Ports:
    """Ports at which something answers, each in a thread of its own."""

    def __init__(self) -> None:
        self._listeners: list[socket.socket] = []
        self.asked: list[str] = []

    def open(self, answer: Callable[[str], bytes | None]) -> Port:
        """Answer each connection by what it asks for; None: not at all."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        threading.Thread(target=self._serve, args=(listener, answer), daemon=True).start()
        host, port = listener.getsockname()
        return host, port

    def _serve(self, listener: socket.socket, answer: Callable[[str], bytes | None]) -> None:
        silent = []
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                reader = PrefaceReader()
                while reader.missing and (data := sock.recv(reader.missing)):
                    reader.receive_data(data)
                self.asked.append(reader.name)
                said = answer(reader.name)
                if said is None:
                    silent.append(sock)
                else:
                    sock.sendall(said)
                    sock.close()
        for sock in silent:
            sock.close()

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


@pytest.fixture
def ports() -> Iterator[Ports]:
    made = Ports()
    yield made
    made.close()


def proves(name: str) -> bytes:
    return host_proof(SECRET, name) if name.startswith(host_name(7, 4711)) else b""


def closed() -> Port:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        return host, port


def found(routes: Routes, host: HostAddress) -> tuple[Port | None, str]:
    """Search a host; returns its address, and what is the matter with it."""
    done = threading.Event()
    routes.find(host, done.set)
    assert done.wait(60)
    return routes.known(host), routes.problem(host)


def at(*ports: Port) -> HostAddress:
    return HostAddress(7, 4711, b"/d", ports)


def test_the_first_that_proves_itself_is_taken(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that is closed, one that is silent, another program, another host of this one, nor who only repeats."""
    wrong = [ports.open(answer) for answer in (lambda _: None, lambda _: b"HTTP/1.1 400", lambda _: b"", str.encode)]
    right = ports.open(proves)
    monkeypatch.setattr(routes_module, "_SECONDS", 1000.0)  # it is not waited until the silent one is given up
    assert found(Routes(SECRET), at(closed(), *wrong, right)) == (right, "")


def test_a_host_is_searched_once_and_anew_when_it_is_doubted(ports: Ports) -> None:
    host = at(ports.open(proves))
    routes = Routes(SECRET)
    assert found(routes, host) == found(routes, host) and len(ports.asked) == 1
    routes.doubt(host)
    assert routes.known(host) is None
    found(routes, host)
    assert len(set(ports.asked)) == 2, "each time another question"


def test_all_that_wait_are_told_of_one_search(ports: Ports) -> None:
    host = at(ports.open(proves))
    routes = Routes(SECRET)
    told = [threading.Event() for _ in range(5)]
    for each in told:
        routes.find(host, each.set)
    assert all(each.wait(60) for each in told) and len(ports.asked) == 1


def test_why_a_host_is_not_reached_is_kept_for_a_while(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "_SECONDS", 0.2)
    first, second = closed(), ports.open(lambda _: None)
    routes = Routes(SECRET)
    address, why = found(routes, at(first, second))
    assert address is None
    assert why == f"127.0.0.1 port {first[1]}: Connection refused; 127.0.0.1 port {second[1]}: no answer in time"
    wait_until(lambda: ports.asked, 60)  # it may read that late
    found(routes, at(first, second))
    assert len(ports.asked) == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + routes_module.AGAIN_SECONDS)
    assert routes.problem(at(first, second)) == ""


def test_a_host_of_which_no_address_is_known() -> None:
    assert found(Routes(SECRET), at()) == (None, "no address")


def test_a_host_that_is_doubted_while_others_wait_for_it_is_searched_again(ports: Ports) -> None:
    """It is not taken for one that is not reached: the root is not asked for a way through it."""
    relayed: list[str] = []
    told = [threading.Event(), threading.Event()]

    def relay(_address: RankAddress, why: str, _opened: Opened) -> None:
        relayed.append(why)
        told[1].set()

    connector = Connector(secret=SECRET, relay=relay)
    address = RankAddress(at(ports.open(proves)), "mesh", 0)

    def first(_found: object) -> None:
        connector.doubt(address)
        told[0].set()

    connector.find(address, first)
    connector.find(address, lambda _found: told[1].set())
    assert all(each.wait(60) for each in told) and relayed == []

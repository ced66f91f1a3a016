"""How the store of another machine is found, reached by TLS, and lost."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshrt.mesh.invitations import make_certificate
from meshrt.store import hostlinks
from meshrt.store.chain import StoreName
from meshrt.store.hostlink import Lost
from meshrt.store.hostlinks import Elsewhere, HostLinks
from meshrt.store.messages import FromStore, LetGo, Piece, Pull, ToStore
from meshrt.store.peers import Peer, Peers
from meshrt.transport.acceptor import SelectorReaders
from meshrt.transport.dataport import DataPort
from meshrt.wire.addresses import HostAddress, Port, Way
from meshrt.wire.certificate import Certificate
from meshrt.wire.handshake import Identity
from meshrt.wire.tree import Refusal

SECRET = b"s" * 32
HERE, THERE = Identity(1, os.getpid(), os.getpid()), Identity(2, 77, 77)
NAME = StoreName(THERE.machine, THERE.agent_pid)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return make_certificate()


class Stores:
    """The links of one store, and another one that listens at a port of loopback, in the same thread."""

    def __init__(self, folder: Path, certificate: Certificate) -> None:
        self.selector = selectors.DefaultSelector()
        self.links = HostLinks(self.selector, str(folder), SECRET, HERE)
        self.asked: list[StoreName] = []
        self.ways: list[tuple[StoreName, str]] = []
        self.trust(certificate)
        self.heard: list[tuple[StoreName, FromStore]] = []
        self.told: list[ToStore | Piece | Lost] = []
        self.ended: list[int] = []
        self._later: list[Callable[[], None]] = []
        self.there = Peers(
            self.selector,
            str(folder / "there"),
            SECRET,
            THERE,
            lambda _peer, _incoming: None,
            self._from_store,
            self.ended.append,
            lambda _seconds, action: self._later.append(action),
        )
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: Port = ("127.0.0.1", listener.getsockname()[1])
        self.names: list[str] = []

        def give(name: str, sock: socket.socket, accepted: float) -> None:
            self.names.append(name)
            self.there.admit(sock, certificate, accepted)

        self._door = DataPort(SelectorReaders(self.selector), listener, give, lambda _seconds, _action: None)

    def _from_store(self, peer: Peer, message: FromStore) -> None:
        self.heard.append((peer.host, message))
        if isinstance(message, Pull):
            self.there.answer(peer, Refusal(message.id, "no"))

    def trust(self, certificate: Certificate) -> None:
        """Have the links this certificate."""
        self.links.elsewhere = Elsewhere(certificate, self.asked.append, lambda *asked: self.ways.append(asked))

    def address(self, *ports: Port, machine: int = THERE.machine) -> HostAddress:
        return HostAddress(machine, THERE.agent_pid, b"/nowhere", ports)

    def ask(self) -> None:
        """Ask the other store for something."""
        self.links.to(*NAME).ask(lambda number: Pull(number, 9, 1), self.told.append)

    def serve_until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not true():
            assert time.monotonic() < deadline
            for key, events in self.selector.select(0.05):
                key.data(events)

    def close(self) -> None:
        self.links.close()
        self.there.close()
        self._door.close()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()


@pytest.fixture
def stores(tmp_path: Path, certificate: Certificate) -> Iterator[Stores]:
    made = Stores(tmp_path, certificate)
    yield made
    made.close()


def closed_port() -> Port:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return ("127.0.0.1", listener.getsockname()[1])


def test_what_is_said_waits_until_the_other_store_is_known_and_reached(stores: Stores) -> None:
    stores.ask()
    stores.links.to(*NAME).tell(LetGo([5]))
    assert stores.asked == [NAME], "once"
    stores.links.located(NAME, stores.address(stores.port))
    stores.serve_until(lambda: stores.told and len(stores.heard) == 2)
    own = StoreName(HERE.machine, HERE.agent_pid)
    assert stores.heard == [(own, Pull(1, 9, 1)), (own, LetGo([5]))] and stores.names == ["store"]
    assert stores.told == [Refusal(1, "no")] and stores.there.pids() == {-1}
    stores.links.close()
    stores.serve_until(lambda: stores.ended == [-1])


def test_the_first_address_does_not_answer(stores: Stores) -> None:
    stores.ask()
    stores.links.located(NAME, stores.address(closed_port(), stores.port))
    stores.serve_until(lambda: stores.told)
    assert stores.told == [Refusal(1, "no")]


def test_an_address_that_is_silent_is_given_up(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stores.ask()
        stores.links.located(NAME, stores.address(("127.0.0.1", silent.getsockname()[1]), stores.port))
        stores.links.tick()
        assert stores.told == []
        monkeypatch.setattr(hostlinks, "_SECONDS", -1.0)
        stores.links.tick()
        monkeypatch.undo()
        stores.serve_until(lambda: stores.told)
    assert stores.told == [Refusal(1, "no")]


def test_a_host_that_the_root_does_not_know(stores: Stores) -> None:
    stores.ask()
    stores.links.located(NAME, None)
    assert stores.told == [Lost("is lost")] and stores.links.find(*NAME) is None and stores.ways == []


def test_the_root_is_asked_for_a_way_to_a_host_that_is_not_reached(stores: Stores) -> None:
    port = closed_port()
    stores.ask()
    stores.links.located(NAME, stores.address(port))
    stores.serve_until(lambda: stores.ways)
    assert stores.ways == [(NAME, f"127.0.0.1 port {port[1]}: Connection refused")] and stores.told == []
    stores.links.to(*NAME).tell(LetGo([5]))
    stores.links.located(NAME, None)  # the answer to an earlier question
    stores.links.way_found(NAME, Way(stores.port, "relay/abc"))
    stores.serve_until(lambda: stores.told and len(stores.heard) == 2)
    assert stores.told == [Refusal(1, "no")] and stores.names == ["relay/abc"], "what waited has gone that way"


@pytest.mark.parametrize("how", ["hangs up", "is silent", "another host"])
def test_an_address_that_is_not_that_of_the_host(stores: Stores, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = stores.address(other.getsockname(), machine=THERE.machine)
        if how == "another host":
            address = stores.address(stores.port, machine=3)
        stores.ask()
        stores.links.located(NAME, address)
        if how == "hangs up":
            other.setblocking(False)
            stores.serve_until(lambda: hangs_up(other) and stores.ways)
        if how == "is silent":
            monkeypatch.setattr(hostlinks, "_SECONDS", -1.0)
            monkeypatch.setattr(hostlinks, "_DIRECT_SECONDS", -1.0)
            stores.links.tick()
        stores.serve_until(lambda: stores.ways)
    assert len(stores.ways) == 1 and stores.told == [] and stores.heard == []


def hangs_up(listener: socket.socket) -> bool:
    """Close the next connection that has come. Returns whether there is none."""
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def test_a_host_is_lost_while_a_way_is_asked_for(stores: Stores) -> None:
    stores.ask()
    stores.links.located(NAME, stores.address(closed_port()))
    stores.serve_until(lambda: stores.ways)
    stores.links.tick()
    stores.links.way_found(NAME, None)
    assert stores.told == [Lost("is lost")] and stores.links.find(*NAME) is None


@pytest.mark.parametrize("lives", [True, False])
def test_a_way_that_fails(stores: Stores, lives: bool) -> None:
    port, way = closed_port(), closed_port()
    stores.ask()
    stores.links.located(NAME, stores.address(port))
    stores.serve_until(lambda: stores.ways)
    stores.links.way_found(NAME, Way(way, "relay/abc"))
    stores.serve_until(lambda: len(stores.asked) == 2)
    assert stores.asked == [NAME, NAME] and stores.told == []
    stores.links.located(NAME, stores.address(port) if lives else None)
    why = f"cannot be reached: 127.0.0.1 port {port[1]}: Connection refused; through the script: Connection refused"
    assert stores.told == [Lost(why, reached=False) if lives else Lost("is lost")] and len(stores.ways) == 1


def test_a_process_without_the_certificate(stores: Stores) -> None:
    stores.trust(make_certificate())
    stores.ask()
    stores.links.located(NAME, stores.address(stores.port))
    stores.serve_until(lambda: stores.ways)
    assert stores.heard == [] and stores.there.pids() == set()

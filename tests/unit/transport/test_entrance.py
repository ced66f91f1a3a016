"""The entrance, step by step: who is let in, who is not, and how long each may take."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.transport.acceptor import listening_socket
from meshrt.transport.entrance import Entrance
from meshrt.wire.handshake import (
    ANSWERED_SECONDS,
    HANDSHAKE_SECONDS,
    HELLO_SECONDS,
    ROLE_DATA,
    ROLE_TOOL,
    UNPROVED_MAX,
    ClientHandshake,
    Identity,
    ServerHandshake,
)

SECRET = b"s" * 32
OWN = Identity(1, 2, 3)


class Door:
    """An entrance whose readers, clock and timers are driven by hand."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.now = 1000.0
        self.reading: dict[socket.socket, Callable[[], object]] = {}
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.inside: list[tuple[socket.socket, ServerHandshake]] = []
        self.refuse_reader = self.fail_inside = False
        self.guests: list[socket.socket] = []
        self.entrance = Entrance(
            self,
            listening_socket(self.path),
            "a guest",
            SECRET,
            ROLE_DATA,
            self._let_in,
            lambda seconds, function: self.timers.append((self.now + seconds, function)),
            identity=lambda: OWN,
            serves=lambda name: name.startswith("m/0/"),
        )
        self.entrance.open()

    def _let_in(self, sock: socket.socket, handshake: ServerHandshake) -> None:
        if self.fail_inside:
            raise OSError(28, "No space left on device")
        self.inside.append((sock, handshake))

    def add_reader(self, sock: Any, function: Callable[[], object]) -> None:
        if self.refuse_reader:
            raise OSError(28, "No space left on device")
        self.reading[sock] = function

    def remove_reader(self, sock: Any) -> None:
        del self.reading[sock]

    def dial(self) -> socket.socket:
        """Connect, and be accepted."""
        guest = socket.socket(socket.AF_UNIX)
        self.guests.append(guest)
        guest.connect(self.path)
        guest.setblocking(False)
        self.reading[self.entrance.sockets()[0]]()
        return guest

    def read(self) -> None:
        """Read all that can be read of those that are not let in."""
        for sock in self.entrance.sockets()[1:]:
            if sock in self.reading:
                self.reading[sock]()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        due = [function for when, function in self.timers if when <= self.now]
        self.timers = [(when, function) for when, function in self.timers if when > self.now]
        for function in due:
            function()

    def close(self) -> None:
        self.entrance.close()
        for sock in (*self.guests, *(sock for sock, _ in self.inside)):
            sock.close()


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    made = Door(tmp_path / "door")
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    yield made
    made.close()


def answered(door: Door, endpoint: str = "m/0/actor") -> tuple[socket.socket, ClientHandshake]:
    """Return a connection whose hello was answered, and which has not proved itself."""
    guest, handshake = door.dial(), ClientHandshake(SECRET, ROLE_DATA, endpoint)
    guest.sendall(handshake.hello())
    door.read()
    return guest, handshake


def refused(guest: socket.socket) -> bool:
    try:
        return guest.recv(200) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_one_that_proves_the_secret_is_let_in_with_what_came_behind(door: Door) -> None:
    guest, handshake = answered(door)
    guest.sendall(handshake.receive_data(guest.recv(100)) + b"behind it")
    door.read()
    ((sock, found),) = door.inside
    assert (found.endpoint, found.client.pid, found.leftover) == ("m/0/actor", os.getpid(), b"behind it")
    assert handshake.server == OWN and not handshake.receive_data(guest.recv(100)) and handshake.done
    assert not sock.getblocking() and sock not in door.reading and door.entrance.sockets()[1:] == []
    door.wait(10 * HANDSHAKE_SECONDS)
    assert not refused(guest) and not door.timers, "its time is not counted any more"


@pytest.mark.parametrize("step", ["accepted", "answered"])
@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("invalid bytes", True),
        ("the end", False),
        ("no time left", False),
        ("newer ones", False),
        ("the program ends", False),
    ],
)
@pytest.mark.row("N10")
def test_each_way_not_to_be_let_in(
    door: Door, caplog: pytest.LogCaptureFixture, step: str, event: str, said: bool
) -> None:
    guest = door.dial() if step == "accepted" else answered(door)[0]
    if step == "answered":
        assert guest.recv(100)
    match event:
        case "invalid bytes":
            guest.sendall(bytes(32))
            door.read()
        case "the end":
            guest.shutdown(socket.SHUT_WR)
            door.read()
        case "no time left":
            door.wait((HELLO_SECONDS if step == "accepted" else HANDSHAKE_SECONDS) - 0.1)
            assert not refused(guest)
            door.wait(0.2)
        case "newer ones":
            newer = [door.dial() for _ in range(UNPROVED_MAX - 1)]
            assert not refused(guest)
            newer.append(door.dial())
            assert not any(map(refused, newer))
        case "the program ends":
            door.entrance.close()
    assert refused(guest) and not door.inside
    assert (f"a guest (pid {os.getpid()}) was refused: " in caplog.text) == said == len(caplog.records)


@pytest.mark.parametrize("endpoint", ["m/1/actor", "other/0/actor"])
def test_an_endpoint_that_is_not_served_here(door: Door, endpoint: str) -> None:
    guest, _ = answered(door, endpoint)
    assert guest.recv(200) and refused(guest)


def test_another_role_and_another_secret(door: Door) -> None:
    guest = door.dial()
    guest.sendall(ClientHandshake(SECRET, ROLE_TOOL, "m/0/actor").hello())
    door.read()
    assert refused(guest)
    guest, other = answered(door)
    other._secret = b"t" * 32
    guest.recv(100)
    guest.sendall(bytes(32))
    door.read()
    assert refused(guest) and not door.inside


def test_one_that_is_slow_has_no_more_time(door: Door) -> None:
    """From when it was accepted to its proof, however late its hello has come."""
    guest = door.dial()
    door.wait(HELLO_SECONDS - 0.1)
    guest.sendall(ClientHandshake(SECRET, ROLE_DATA, "m/0/actor").hello())
    door.read()
    door.wait(ANSWERED_SECONDS)
    assert guest.recv(100) and not refused(guest)
    door.wait(0.2)
    assert refused(guest)


@pytest.mark.parametrize(("ago", "left"), [(1.0, HELLO_SECONDS - 1.0), (HELLO_SECONDS + 1.0, HELLO_SECONDS)])
def test_one_that_another_process_has_accepted(door: Door, ago: float, left: float) -> None:
    """Its time has begun then; all of it, if this process was busy for longer than that."""
    ours, guest = socket.socketpair()
    guest.setblocking(False)
    door.guests.append(guest)
    door.entrance.admit(ours, door.now - ago)
    door.wait(left - 0.1)
    assert not refused(guest)
    door.wait(0.1)
    assert refused(guest)


def test_one_that_was_answered_late_has_all_of_its_time(door: Door) -> None:
    """Code that held the GIL has used up the time of a guest that had said its hello at once."""
    guest, silent = door.dial(), door.dial()
    handshake = ClientHandshake(SECRET, ROLE_DATA, "m/0/actor")
    guest.sendall(handshake.hello())
    door.now += HANDSHAKE_SECONDS + 1
    door.read()
    door.wait(0)
    assert refused(silent)
    door.wait(ANSWERED_SECONDS - 0.1)
    guest.sendall(handshake.receive_data(guest.recv(100)))
    door.read()
    assert door.inside


def test_one_timer_serves_all(door: Door) -> None:
    for _ in range(10):
        door.dial()
    assert len(door.timers) == 1
    door.wait(HELLO_SECONDS / 2)
    later = door.dial()
    door.wait(HELLO_SECONDS / 2)
    assert len(door.timers) == 1 and not refused(later) and len(door.entrance.sockets()) == 2
    door.wait(HELLO_SECONDS / 2)
    assert refused(later) and not door.timers


def test_those_whose_proof_has_come_are_let_in_at_once(door: Door) -> None:
    door.dial()
    guest, handshake = answered(door)
    guest.sendall(handshake.receive_data(guest.recv(100)))
    door.entrance.read_now()
    assert len(door.inside) == 1 and len(door.entrance.sockets()) == 2


def test_connections_of_one_process_are_let_in_in_their_order(door: Door) -> None:
    own, other = Identity(1, 2, 3), Identity(4, 5, 6)
    proofs = []
    for name, identity in (("other", other), ("first", own), ("second", own)):
        guest, handshake = door.dial(), ClientHandshake(SECRET, ROLE_DATA, f"m/0/{name}", identity)
        guest.sendall(handshake.hello())
        door.read()
        proofs.append((guest, handshake.receive_data(guest.recv(100))))
    for guest, proof in proofs:
        guest.sendall(proof)
    last = door.entrance.sockets()[-1]
    door.reading[last]()
    assert [handshake.endpoint for _, handshake in door.inside] == ["m/0/first", "m/0/second"]
    door.read()
    assert len(door.inside) == 3


def test_one_that_was_found_readable_and_is_closed_meanwhile(door: Door) -> None:
    guest = door.dial()
    guest.sendall(b"x")
    (sock,) = door.entrance.sockets()[1:]
    read = door.reading[sock]
    door.wait(HANDSHAKE_SECONDS)
    read()
    assert refused(guest)


@pytest.mark.parametrize("where", ["reader", "inside"])
def test_this_side_is_short_of_something(door: Door, caplog: pytest.LogCaptureFixture, where: str) -> None:
    if where == "reader":
        guest, door.refuse_reader = door.guests, True
        door.dial()
    else:
        guest, door.fail_inside = door.guests, True
        sock, handshake = answered(door)
        sock.sendall(handshake.receive_data(sock.recv(100)))
        door.read()
        assert sock.recv(1)
    assert refused(guest[-1]) and door.entrance.sockets()[1:] == [] and not door.inside
    assert [each.getMessage() for each in caplog.records] == ["a guest cannot be accepted: No space left on device"]

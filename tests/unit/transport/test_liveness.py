"""A machine that is silent is told from a process that does not read."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from meshrt.transport.liveness import Silence, end_when_silent, unheard


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    with one, other:
        yield one, other


class Played:
    """A connection whose kernel says what the test has it say."""

    def __init__(self) -> None:
        self.under_way = 0
        self.sent_ms = 2000
        self.acknowledged = 0

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        times = (self.sent_ms, 4000, 3000)
        return struct.pack("24x I 16x I 4x I I 60x Q", self.under_way, *times, self.acknowledged)


def looks(silence: Silence, sock: Any, count: int) -> list[bool]:
    return [silence.look(sock) for _ in range(count)]


def test_what_is_never_acknowledged_is_silence() -> None:
    sock, silence = Played(), Silence(5, 0.5)
    sock.acknowledged = 100
    assert looks(silence, sock, 30) == [False] * 30, "nothing is under way"
    sock.under_way = 2
    assert looks(silence, sock, 11) == [False] * 10 + [True]


def test_an_acknowledgement_of_any_byte_is_a_sign() -> None:
    sock, silence = Played(), Silence(5, 0.5)
    sock.under_way = 9
    for _ in range(10):
        sock.acknowledged += 1
        assert looks(silence, sock, 9) == [False] * 9


def test_an_answer_that_acknowledges_nothing_is_a_sign_too() -> None:
    """The peer has no room, and says so each time that it is sent the same again."""
    sock, silence = Played(), Silence(5, 0.5)
    sock.under_way = 9
    assert looks(silence, sock, 9) == [False] * 9
    sock.sent_ms = 3200
    assert looks(silence, sock, 30) == [False] * 30


def test_a_process_that_does_not_read_is_not_silent(pair: tuple[socket.socket, socket.socket]) -> None:
    """Its kernel has no room for more, and says so."""
    one, _ = pair
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            one.send(b"x" * 65536)
    silence = Silence(0.5, 0.05)
    for _ in range(25):
        assert not silence.look(one)
        time.sleep(0.05)


def test_nothing_is_told_of_another_kind_of_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not any(looks(Silence(0, 1), ours, 3)) and unheard(ours) is None


def test_when_something_was_heard_last(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    end_when_silent(one, 7)
    other.sendall(b"x")
    heard = unheard(one)
    assert heard is not None and heard < 5
    assert unheard(Played()) == 3.0  # type: ignore[arg-type]

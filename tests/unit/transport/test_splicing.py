"""Bytes that are passed on between pairs of connections."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from meshrt.transport.splicing import Splicer
from tests.support.waiting import wait_until


class Bench:
    """Two ends, and what connects them."""

    def __init__(self, splicer: Splicer) -> None:
        self.left, one = self._tcp()
        self.right, other = self._tcp()
        splicer.add(one, other)

    @staticmethod
    def _tcp() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            end = socket.create_connection(listener.getsockname())
            end.settimeout(20)
            return end, listener.accept()[0]

    def close(self) -> None:
        self.left.close()
        self.right.close()


@pytest.fixture
def splicer() -> Iterator[Splicer]:
    made = Splicer()
    yield made
    made.close()


@pytest.fixture
def bench(splicer: Splicer) -> Iterator[Bench]:
    made = Bench(splicer)
    yield made
    made.close()


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


def fill(sock: socket.socket) -> int:
    """Send until nothing more is taken for a while; returns how many bytes."""
    sock.setblocking(False)
    sent, taken_at = 0, time.monotonic()
    while time.monotonic() - taken_at < 0.3:
        with contextlib.suppress(BlockingIOError):
            sent += sock.send(b"x" * 65536)
            taken_at = time.monotonic()
    sock.settimeout(20)
    return sent


def test_both_ways(bench: Bench) -> None:
    bench.left.sendall(b"there")
    bench.right.sendall(b"back")
    assert (read(bench.right, 5), read(bench.left, 4)) == (b"there", b"back")


def test_much_arrives_whole_in_both_directions_at_once(bench: Bench) -> None:
    data = os.urandom(3_000_000)
    senders = [threading.Thread(target=end.sendall, args=(data,)) for end in (bench.left, bench.right)]
    for sender in senders:
        sender.start()
    got: dict[socket.socket, bytes] = {}
    readers = [
        threading.Thread(target=lambda end=end: got.update({end: read(end, len(data))}))
        for end in (bench.left, bench.right)
    ]
    for reader in readers:
        reader.start()
    for thread in (*senders, *readers):
        thread.join(20)
    assert got == {bench.left: data, bench.right: data}


def test_who_does_not_read_slows_its_sender_alone(bench: Bench, splicer: Splicer) -> None:
    sent = fill(bench.left)
    assert sent < 64 << 20, "what the kernel keeps, not what the splicer keeps"
    bench.right.sendall(b"back")
    assert read(bench.left, 4) == b"back"
    other = Bench(splicer)
    other.left.sendall(b"there")
    assert read(other.right, 5) == b"there"
    other.close()
    assert read(bench.right, sent) == b"x" * sent


def test_the_end_of_one_direction_is_passed_on_behind_what_was_sent(bench: Bench) -> None:
    bench.left.sendall(b"last")
    bench.left.shutdown(socket.SHUT_WR)
    assert read(bench.right, 10) == b"last"
    bench.right.sendall(b"answer")
    assert read(bench.left, 6) == b"answer"
    bench.right.close()
    assert bench.left.recv(1) == b""


def test_an_end_that_breaks_ends_the_other(bench: Bench) -> None:
    bench.left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    bench.left.close()  # a reset
    with contextlib.suppress(ConnectionResetError):
        assert bench.right.recv(1) == b""


def test_a_full_pair_whose_sender_has_ended_costs_no_time(bench: Bench) -> None:
    sent = fill(bench.left)
    bench.left.shutdown(socket.SHUT_WR)
    bench.right.shutdown(socket.SHUT_WR)
    begun = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begun < 0.3
    assert read(bench.right, sent + 1) == b"x" * sent


def test_all_are_closed_at_the_end(bench: Bench, splicer: Splicer) -> None:
    bench.left.sendall(b"x")
    assert bench.right.recv(1) == b"x"
    splicer.close()
    assert bench.left.recv(1) == b"" and bench.right.recv(1) == b""
    splicer.close()
    late = Bench(splicer)
    assert late.left.recv(1) == b""
    late.close()


def test_a_fork_closes_its_copies(bench: Bench, splicer: Splicer) -> None:
    bench.left.sendall(b"x")
    assert bench.right.recv(1) == b"x"
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            splicer.abandon()
            bench.close()
            time.sleep(30)
        os._exit(0)
    try:
        splicer.close()
        wait_until(lambda: bench.left.recv(1) == b"", 5)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)

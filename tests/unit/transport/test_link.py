"""A link over a socketpair: whole frames, in order, whatever the socket takes at a time."""

from __future__ import annotations

import mmap
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from meshrt.errors import ProtocolError
from meshrt.transport.link import Link, peer_of, same_user
from meshrt.wire.frames import Frame, FrameDecoder, split_frames
from tests.support.limits import limited
from tests.support.waiting import wait_until


@pytest.fixture
def pair() -> Iterator[tuple[Link, Link]]:
    left, right = (Link(sock) for sock in socket.socketpair())
    yield left, right
    left.close()
    right.close()


def receive(link: Link, count: int) -> list[Frame]:
    found: list[Frame] = []

    def enough() -> bool:
        found.extend(link.read() or ())
        return len(found) >= count

    wait_until(enough)
    return found


def test_frames_go_through_in_both_directions(pair: tuple[Link, Link]) -> None:
    left, right = pair
    assert left.send(split_frames(1, ["a"], [b"x"])) and left.send(split_frames(2, ["b"], []))
    assert right.send(split_frames(3, ["c"], []))
    assert [(frame.kind, frame.header) for frame in receive(right, 2)] == [(1, ["a"]), (2, ["b"])]
    assert [frame.kind for frame in receive(left, 1)] == [3]
    assert left.read() == []


def test_what_the_socket_does_not_take_is_queued_and_flushed_in_order(pair: tuple[Link, Link]) -> None:
    left, right = pair
    payloads = [bytes([index]) * 900_000 for index in range(5)]
    sent = [left.send(split_frames(index, [], [payload])) for index, payload in enumerate(payloads)]
    assert not any(sent[2:]) and left.backlog_bytes > 900_000
    found: list[Frame] = []

    def all_there() -> bool:
        left.flush()
        found.extend(right.read() or ())
        return len(found) == 5

    wait_until(all_there)
    assert [bytes(frame.payload) for frame in found] == payloads
    assert left.flush() and left.backlog_bytes == 0 and not left.backlog


def test_a_small_frame_never_overtakes_a_queued_one(pair: tuple[Link, Link]) -> None:
    left, right = pair
    left.send(split_frames(1, [], [bytes(4 << 20)]))
    assert not left.send(split_frames(2, [], []))
    found: list[Frame] = []

    def both() -> bool:
        found.extend(right.read() or ())
        left.flush()
        return len(found) == 2

    wait_until(both)
    assert [frame.kind for frame in found] == [1, 2]


def test_a_kept_backlog_is_a_copy(pair: tuple[Link, Link]) -> None:
    left, right = pair
    memory = bytearray(b"a" * (1 << 20))
    left.send(split_frames(1, [], [memory]))
    left.keep_backlog()
    taken = len(memory) - left.backlog_bytes
    memory[:] = b"b" * len(memory)
    found: list[Frame] = []

    def there() -> bool:
        found.extend(right.read() or ())
        left.flush()
        return bool(found)

    wait_until(there)
    assert bytes(found[0].payload) == b"a" * len(memory) and taken > 0


def test_a_backlog_that_cannot_be_copied_stays_as_it_is(pair: tuple[Link, Link]) -> None:
    """Of pages that nobody writes to, which cost nothing."""
    left, _ = pair
    left.send(split_frames(1, [], [memoryview(mmap.mmap(-1, 2 << 30))]))
    before, count = left.backlog_bytes, len(left.backlog)
    with limited(8 << 20):
        assert not left.keep_backlog()
    assert (left.backlog_bytes, len(left.backlog)) == (before, count)


class PoorSocket(socket.socket):
    """There is no memory for more than 4 KiB at a time."""

    def recv(self, size: int, *flags: int) -> bytes:
        if size > 4096:
            raise MemoryError
        return super().recv(size, *flags)


def test_little_is_read_where_there_is_no_memory_for_more() -> None:
    left, right = socket.socketpair()
    link = Link(PoorSocket(fileno=right.detach()))
    left.sendall(b"".join(part for size in (100, 5000, 9000) for part in split_frames(1, [size], [bytes(size)])))
    assert [frame.header for frame in receive(link, 3)] == [[100], [5000], [9000]]
    left.close()
    link.close()


def test_threads_send_whole_frames(pair: tuple[Link, Link]) -> None:
    left, right = pair
    found: list[Frame] = []

    def send(who: int) -> None:
        for index in range(200):
            left.send(split_frames(1, [who, index], [bytes([who]) * 500]))

    threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()

    def all_there() -> bool:
        left.flush()
        found.extend(right.read() or ())
        return len(found) == 800

    wait_until(all_there)
    for thread in threads:
        thread.join(10)
    for who in range(4):
        mine = [frame for frame in found if frame.header[0] == who]
        assert [frame.header[1] for frame in mine] == list(range(200))
        assert all(bytes(frame.payload) == bytes([who]) * 500 for frame in mine)


def test_the_end_of_the_stream(pair: tuple[Link, Link]) -> None:
    left, right = pair
    left.send(split_frames(1, [], []))
    left.close()
    left.close()
    assert [frame.kind for frame in right.drain()] == [1]
    assert right.read() is None
    assert right.send(split_frames(1, [], [])) and right.reader_gone  # dropped without a word
    assert left.send(split_frames(1, [], []))


def test_what_a_gone_reader_sent_before_can_still_be_read(pair: tuple[Link, Link]) -> None:
    left, right = pair
    right.send(split_frames(7, [], []))
    right.close()
    left.send(split_frames(1, [], [bytes(4 << 20)]))
    assert left.reader_gone and left.backlog_bytes == 0
    assert [frame.kind for frame in left.drain()] == [7]


def test_foreign_bytes_are_a_protocol_error_and_drain_stops_there() -> None:
    left, right = socket.socketpair()
    link = Link(right, FrameDecoder(1000))
    left.sendall(bytes(split_frames(1, [], [])[0]) + b"\xff" * 20)
    with pytest.raises(ProtocolError):
        link.read()
    left.sendall(b"\xff" * 20)
    assert link.drain() == []
    left.close()
    link.close()


def test_the_kernel_tells_who_is_at_the_other_end() -> None:
    left, right = socket.socketpair(socket.AF_UNIX)
    assert peer_of(left) == (os.getpid(), os.geteuid())
    assert same_user(left)
    left.close()
    right.close()


def test_at_rest_is_what_has_nothing_to_read_and_nothing_to_write(pair: tuple[Link, Link]) -> None:
    left, right = pair
    assert left.at_rest() and right.at_rest()
    left.send(split_frames(1, [], []))
    assert left.at_rest() and not right.at_rest()
    assert len(receive(right, 1)) == 1 and right.at_rest()
    while left.send(split_frames(1, [], [bytes(100_000)])):
        pass
    assert not left.at_rest()
    right.drain()
    wait_until(lambda: right.drain() is not None and left.flush())
    assert left.at_rest()
    left.close()
    wait_until(lambda: not right.at_rest())

"""The callers of an actor, at the other ends of socketpairs."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from meshrt.actor.callers import Callers
from meshrt.transport.link import Link
from meshrt.wire.frames import Frame, split_frames
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CALL, CANCEL, INIT, STOP
from tests.support.descriptors import next_is


def test_one_that_is_dropped_twice_leaves_alone_who_has_its_descriptor() -> None:
    callers = Callers()
    theirs, ours = socket.socketpair()
    first = Link(ours)
    callers.add([first], [])
    assert callers.collect(0)
    theirs.close()
    callers.collect(0)
    assert first.closed
    with next_is(first.fileno()):
        ours, theirs = socket.socketpair()
    second = Link(ours)
    assert second.fileno() == first.fileno()
    callers.add([second], [])
    callers.collect(0)
    callers.drop(first)
    theirs.sendall(b"".join(split_frames(STOP, [1], [])))
    assert callers.collect(0) and [message[0] for message in callers.queue] == [second]
    theirs.close()
    callers.close()


class Peer:
    """One caller, and the mailbox's end of its link."""

    def __init__(self, callers: Callers, *, urgent: bool = False, pid: int = 7) -> None:
        self.sock, ours = socket.socketpair()
        self.link = Link(ours)
        self.link.urgent = urgent
        self.link.client = Identity(1, 1, pid)
        callers.add([self.link], [])
        assert callers.collect(0)

    def send(self, kind: int, *header: object) -> None:
        self.sock.sendall(b"".join(split_frames(kind, list(header), [])))

    def call(self, call_id: int) -> None:
        self.send(CALL, call_id, "step", b"", [], 0)

    def answers(self) -> list[list[object]]:
        return [frame.header for frame in Link(self.sock).read() or ()]


@pytest.fixture
def callers() -> Iterator[Callers]:
    callers = Callers()
    opener = Peer(callers)
    opener.send(INIT, 0, "Class", b"", [])
    callers.collect(0)
    assert callers.queue.popleft()[1].kind == INIT
    yield callers
    opener.sock.close()
    callers.close()


def waiting(callers: Callers) -> list[int]:
    return [frame.header[0] for _, frame in callers.queue]


def test_one_that_cannot_be_read_for_want_of_memory_is_lost_alone(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = Peer(callers), Peer(callers)
    read = Link.read

    def reads(link: Link) -> list[Frame] | None:
        if link is lost.link:
            raise MemoryError
        return read(link)

    monkeypatch.setattr(Link, "read", reads)
    lost.call(1)
    other.call(2)
    while not waiting(callers):
        assert callers.collect(0)
    assert lost.link.closed and waiting(callers) == [2]
    lost.sock.close()
    other.sock.close()


@pytest.mark.parametrize("side_first", [False, True])
def test_a_cancellation_comes_twice_and_leaves_nothing(callers: Callers, side_first: bool) -> None:
    """On the link of the call, and noted by the control thread; whichever is first, also behind the call's run."""
    peer = Peer(callers)
    for ran in (False, True):
        if side_first:
            callers.note_cancelled(peer.link.client, 1)
        peer.call(1)
        callers.collect(0)
        if ran:
            message = callers.queue.popleft()
            assert callers.is_cancelled(*message) is side_first
        peer.send(CANCEL, 1, False, "actor")
        callers.collect(0)
        if not side_first:
            callers.note_cancelled(peer.link.client, 1)
        assert not callers.queue and not callers.cancelled
    assert [header[3] for header in peer.answers()].count("withdrawn") == (2 if side_first else 1)
    peer.sock.close()


def test_what_a_caller_that_ends_has_cancelled_is_forgotten(callers: Callers) -> None:
    peer, other = Peer(callers, pid=8), Peer(callers, pid=9)
    callers.note_cancelled(peer.link.client, 1)
    callers.note_cancelled(other.link.client, 1)
    peer.sock.close()
    callers.collect(0)
    assert callers.cancelled == {(other.link.client, 1)}
    other.sock.close()


def test_what_has_come_is_known_before_the_actors_thread_looks(callers: Callers) -> None:
    peer = Peer(callers)
    assert not callers.has_unseen() and callers.waiting(unread=False) == (0, False)
    peer.call(1)
    assert callers.has_unseen()
    callers.collect(0)
    assert not callers.has_unseen() and waiting(callers) == [1]
    callers.add([], [callers.queue.popleft()])
    assert callers.has_unseen() and callers.waiting(unread=False) == (1, False)
    callers.collect(0)
    assert not callers.has_unseen() and waiting(callers) == [1]
    peer.sock.close()
    closed = Callers()
    closed.close()
    assert not closed.has_unseen()


def test_urgent_calls_overtake_others_and_do_not_pile_up(callers: Callers) -> None:
    peer, urgent = Peer(callers), Peer(callers, urgent=True)
    for number in range(5):
        peer.call(number)
    callers.collect(0)
    for number in range(100, 140):
        urgent.call(number)
        if number in (119, 139):
            callers.collect_urgent()
    assert waiting(callers) == [
        *range(100, 120),
        *range(5),
    ]  # the others wait in the socket, and make their caller wait
    taken = []
    while callers.queue:
        taken.append(callers.queue.popleft()[1].header[0])
        callers.collect_urgent()
    assert taken == [*range(100, 140), *range(5)]
    for sock in (peer.sock, urgent.sock):
        sock.close()


def test_an_urgent_call_does_not_overtake_the_constructor(callers: Callers) -> None:
    peer, urgent = Peer(callers), Peer(callers, urgent=True)
    peer.send(INIT, 5, "Class", b"", [])
    peer.call(6)
    callers.collect(0)
    urgent.call(7)
    callers.collect_urgent()
    assert waiting(callers) == [5, 7, 6]
    for sock in (peer.sock, urgent.sock):
        sock.close()

"""The callers of stopped actors, on the test's thread: they are told, nothing is lost, INIT takes them along."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from meshrt.actor.callers import Message
from meshrt.actor.stopped import StoppedActors
from meshrt.selection import Shape
from meshrt.transport.link import Link
from meshrt.wire.frames import Frame, pack_header
from meshrt.wire.messages import CALL, ERROR, INIT, NO_REPLY, RESULT, STATE, STOP

VIEW: bytes = msgpack.packb([*Shape.unity().to_wire(), b""])

STOPPED = (STATE, [0, True])
BEGUN = (STATE, [0, False])


def refused(call_id: int) -> tuple[int, list[Any]]:
    return ERROR, [call_id, [["", "", "", [], ""]], [], "stopped"]


class Bench:
    """`StoppedActors`, and the callers at the other ends of socketpairs."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.begun: list[tuple[str, list[Link], list[Message]]] = []
        self.stopped = StoppedActors(self.selector, lambda *what: self.begun.append(what))
        self.ours: list[Link] = []
        self.theirs: list[Link] = []

    def caller(self) -> int:
        """Make a caller; returns its number."""
        for links, sock in zip((self.ours, self.theirs), socket.socketpair(), strict=True):
            links.append(Link(sock))
        return len(self.ours) - 1

    def add(self, numbers: list[int], *messages: tuple[int, Frame], actor: str = "a") -> None:
        links = [self.theirs[number] for number in numbers]
        self.stopped.add(actor, links, [(self.theirs[number], frame) for number, frame in messages])

    def send(self, number: int, kind: int, header: list[Any]) -> None:
        assert self.ours[number].send([pack_header(kind, header)])

    def serve(self) -> None:
        """Do what is to be done now."""
        while ready := self.selector.select(0):
            for key, events in ready:
                key.data(events)

    def told(self, number: int) -> list[tuple[int, Any]]:
        """Return what has come to a caller since the last look."""
        self.serve()
        return [(frame.kind, frame.header) for frame in self.ours[number].drain()]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.selector.close()
    for link in (*made.ours, *made.theirs):
        link.close()


def call(call_id: int, flags: int = 0) -> Frame:
    return Frame(CALL, [call_id, "step", VIEW, [1], flags], b"")


def test_every_caller_is_told_and_what_was_read_before_is_answered_in_order(bench: Bench) -> None:
    one, two = bench.caller(), bench.caller()
    bench.add([one, two], (one, Frame(STOP, [5], b"")), (two, call(1)), (one, call(6)), (one, Frame(STOP, [7], b"")))
    assert bench.told(one) == [STOPPED, (RESULT, [5, None]), refused(6), (RESULT, [7, None])]
    assert bench.told(two) == [STOPPED, refused(1)]
    assert "a" in bench.stopped and "b" not in bench.stopped
    client = bench.theirs[one].client
    assert [number for number in range(9) if bench.stopped.has_answered("a", client, number)] == [5, 7]
    assert not bench.stopped.has_answered("b", client, 5)


def test_later_calls_and_later_callers_are_refused(bench: Bench) -> None:
    bench.add([])
    late = bench.caller()
    bench.add([late])
    assert bench.told(late) == [STOPPED]
    for call_id in (1, 2):
        bench.send(late, CALL, [call_id, "step", VIEW, [], 0])
    bench.send(late, CALL, [3, "step", VIEW, [], NO_REPLY])
    bench.send(late, STOP, [4])
    assert bench.told(late) == [refused(1), refused(2), (RESULT, [4, None])]


@pytest.mark.parametrize("read_before", [True, False])
def test_init_takes_all_callers_of_this_actor_along(bench: Bench, read_before: bool) -> None:
    """Nothing behind the INIT is answered here, and nothing is read any more."""
    one, two, other = (bench.caller() for _ in range(3))
    bench.add([other], actor="b")
    if read_before:
        init = Frame(INIT, [1, "Class", VIEW, []], b"")
        bench.add([one, two], (two, call(1)), (one, init), (one, call(2)))
    else:
        bench.add([one, two], (two, call(1)))
        bench.send(one, INIT, [1, "Class", VIEW, []])
        bench.send(one, CALL, [2, "step", VIEW, [], 0])
    bench.serve()
    ((actor, links, messages),) = bench.begun
    assert actor == "a" and set(links) == {bench.theirs[one], bench.theirs[two]}
    assert [(link is bench.theirs[one], frame.kind) for link, frame in messages] == [(True, INIT), (True, CALL)]
    assert bench.told(one) == [STOPPED, BEGUN]
    assert bench.told(two) == [STOPPED, refused(1), BEGUN]
    bench.send(two, CALL, [3, "step", VIEW, [], 0])
    assert bench.told(two) == [] and len(bench.theirs[two].drain()) == 1
    assert "a" not in bench.stopped and "b" in bench.stopped


def test_two_that_are_ready_at_once(bench: Bench) -> None:
    """The INIT of one gives the other away, whose message belongs to the actor then."""
    one, two = bench.caller(), bench.caller()
    bench.add([one, two])
    for number in (one, two):
        bench.send(number, INIT, [1, "Class", VIEW, []])
    for key, events in bench.selector.select(1):
        key.data(events)
    assert len(bench.begun) == 1 and len(bench.begun[0][2]) == 1
    assert sum(len(link.drain()) for link in bench.begun[0][1]) == 1


def test_a_caller_that_does_not_read_is_not_read_from(bench: Bench) -> None:
    slow, quick = bench.caller(), bench.caller()
    bench.add([slow, quick])
    count = 0
    while not bench.theirs[slow].backlog:
        bench.send(slow, CALL, [count, "step", VIEW, [], 0])
        count += 1
        bench.serve()
    while bench.ours[slow].send([pack_header(CALL, [count, "step", VIEW, [], 0])]):
        count += 1
        assert count < 1_000_000
    bench.send(quick, CALL, [1, "step", VIEW, [], 0])
    assert bench.told(quick) == [STOPPED, refused(1)]
    answers: list[tuple[int, Any]] = []
    while len(answers) < count + 2:
        answers += bench.told(slow)
        bench.ours[slow].flush()
    assert answers == [STOPPED, *map(refused, range(count + 1))]


def test_who_goes_or_sends_what_is_no_message_is_dropped_alone(bench: Bench) -> None:
    gone, foreign, malformed, fine = (bench.caller() for _ in range(4))
    bench.add([gone, foreign, malformed, fine])
    bench.ours[gone].close()
    bench.ours[foreign].send([b"\xff" * 50])
    bench.send(malformed, CALL, ["no header"])
    bench.send(malformed, CALL, [1, "step", VIEW, [], 0])
    bench.send(fine, CALL, [1, "step", VIEW, [], 0])
    assert bench.told(fine) == [STOPPED, refused(1)]
    assert [bench.theirs[number].closed for number in (gone, foreign, malformed, fine)] == [True, True, True, False]
    assert bench.told(malformed) == [STOPPED]


def test_what_a_caller_sent_before_it_went_is_still_served(bench: Bench) -> None:
    gone = bench.caller()
    bench.ours[gone].close()
    bench.theirs[gone].close()
    bench.add([], (gone, call(1)), (gone, Frame(INIT, [2, "Class", VIEW, []], b"")))
    assert [frame.kind for _, frame in bench.begun[0][2]] == [INIT]


@pytest.mark.parametrize("taken", [True, False])
def test_a_descriptor_that_user_code_has_closed_costs_no_other_caller_its_answer(bench: Bench, taken: bool) -> None:
    closed, fine = bench.caller(), bench.caller()
    number = bench.theirs[closed].fileno()
    os.close(number)
    if taken:
        with socket.socket() as other:
            assert other.fileno() == number
            bench.selector.register(other, selectors.EVENT_WRITE)
            bench.add([closed, fine], (closed, call(1)), (fine, call(2)))
            bench.selector.unregister(other)
    else:
        bench.add([closed, fine], (closed, call(1)), (fine, call(2)))
    assert bench.told(fine) == [STOPPED, refused(2)]


@pytest.mark.parametrize("how", ["close", "abandon"])
def test_the_end(bench: Bench, how: str) -> None:
    bench.add([bench.caller()])
    bench.add([bench.caller()], actor="b")
    bench.selector.close()
    getattr(bench.stopped, how)()
    assert all(link.sock.fileno() == -1 for link in bench.theirs)

"""The mailbox on a thread of the test, its callers at the other ends of socketpairs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from meshrt.actor.actor import Actor
from meshrt.actor.endpoint import endpoint
from meshrt.actor.execute import Executor
from meshrt.actor.mailbox import Mailbox
from meshrt.selection import Extent, Shape
from meshrt.transport.link import Link
from meshrt.wire import codec
from meshrt.wire.frames import Frame, split_frames
from meshrt.wire.messages import CALL, ERROR, INIT, NO_REPLY, RESULT, STOP
from tests.support.waiting import holds_within, wait_until

VIEW: bytes = msgpack.packb(Shape.from_extent(Extent(("n",), (1,))).to_wire())


class Notes(Actor):
    """Keeps what it is told; ``hold`` waits for the test."""

    gate = threading.Event()
    cleaned: list[object] = []  # noqa: RUF012 - shared with the test on purpose

    def __init__(self) -> None:
        self.told: list[object] = []

    @endpoint
    def tell(self, what: object) -> object:
        self.told.append(what)
        return what

    @endpoint
    def hold(self) -> bool:
        return Notes.gate.wait(20)

    @endpoint
    def all(self) -> list[object]:
        return self.told

    @endpoint
    def large(self, size: int) -> bytes:
        return b"x" * size

    def __cleanup__(self, exc: object) -> None:
        Notes.cleaned.append(exc)


class AsyncNotes(Notes):
    @endpoint
    async def tell_async(self, what: object) -> object:
        return self.tell(what)


class Caller:
    """One caller: its end of a link to the mailbox."""

    def __init__(self, mailbox: Mailbox) -> None:
        ours, theirs = socket.socketpair()
        self.link = Link(ours)
        self.frames: list[Frame] = []
        mailbox.add_link(Link(theirs), b"")

    def init(self, cls: type = Notes, call_id: int = 0) -> None:
        parts, lengths = codec.encode((None, cls, (), {}))
        self.send(split_frames(INIT, [call_id, "Notes", VIEW, lengths], parts))

    def call(self, call_id: int, name: str, *args: Any, flags: int = 0) -> None:
        parts, lengths = codec.encode((args, {}))
        self.send(split_frames(CALL, [call_id, name, VIEW, lengths, flags], parts))

    def stop(self, call_id: int) -> None:
        self.send(split_frames(STOP, [call_id], []))

    def send(self, parts: list[Any]) -> None:
        assert self.link.send(parts)

    def answers(self, count: int) -> list[tuple[int, Any]]:
        """Wait for so many answers; returns (call id, value or "error")."""

        def enough() -> bool:
            self.frames += self.link.read() or ()
            return len(self.frames) >= count

        wait_until(enough, 20, f"{count} answers")
        return [(frame.header[0], _value(frame)) for frame in self.frames]


def _value(frame: Frame) -> Any:
    if frame.kind == ERROR:
        return f"error {frame.header[3]}"
    assert frame.kind == RESULT
    return None if frame.header[1] is None else codec.decode(frame.payload, frame.header[1])


class Served:
    """A mailbox and its thread."""

    def __init__(self) -> None:
        Notes.gate.clear()
        Notes.cleaned.clear()
        self.unhandled: list[str] = []
        executor = Executor("m", 0, "notes", None, lambda context, remote: self.unhandled.append(remote.type))
        self.mailbox = Mailbox(executor)
        self.thread = threading.Thread(target=self.mailbox.serve)
        self.callers: list[Caller] = []

    def start(self) -> None:
        self.thread.start()

    def caller(self) -> Caller:
        self.callers.append(Caller(self.mailbox))
        return self.callers[-1]

    def end(self) -> None:
        Notes.gate.set()
        self.mailbox.stop(drain=False)
        if self.thread.ident is not None:
            self.thread.join(20)
        assert not self.thread.is_alive()
        self.mailbox.close()
        for caller in self.callers:
            caller.link.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.end()


@pytest.mark.parametrize("cls", [Notes, AsyncNotes])
def test_calls_before_init_wait_for_it_and_keep_their_order(served: Served, cls: type) -> None:
    early, owner = served.caller(), served.caller()
    for call_id in (1, 2, 3):
        early.call(call_id, "tell", call_id)
    served.start()
    wait_until(lambda: served.mailbox.queued == 3)
    owner.init(cls)
    assert early.answers(3) == [(1, 1), (2, 2), (3, 3)]
    assert owner.answers(1) == [(0, None)]


@pytest.mark.parametrize(("cls", "name"), [(Notes, "tell"), (AsyncNotes, "tell"), (AsyncNotes, "tell_async")])
def test_each_caller_in_its_own_order(served: Served, cls: type, name: str) -> None:
    served.start()
    owner, other = served.caller(), served.caller()
    owner.init(cls)
    for call_id in range(1, 101):
        owner.call(call_id, name, ("owner", call_id))
        other.call(call_id, name, ("other", call_id))
    assert owner.answers(101)[1:] == [(call_id, ("owner", call_id)) for call_id in range(1, 101)]
    assert other.answers(100) == [(call_id, ("other", call_id)) for call_id in range(1, 101)]


def test_a_caller_that_does_not_read_holds_nobody_up(served: Served) -> None:
    served.start()
    slow, quick = served.caller(), served.caller()
    slow.init()
    for call_id in range(1, 5):
        slow.call(call_id, "large", 1 << 20)
    quick.call(1, "tell", "still here")
    assert quick.answers(1) == [(1, "still here")]
    assert [len(value) for _, value in slow.answers(5)[1:]] == [1 << 20] * 4


def test_what_a_caller_sent_before_it_went_is_served(served: Served) -> None:
    served.start()
    owner, gone = served.caller(), served.caller()
    owner.init()
    owner.answers(1)
    for index in range(10):
        gone.call(index, "tell", index, flags=NO_REPLY)
    gone.link.close()

    def all_told() -> bool:
        owner.call(1, "all")
        return bool(owner.answers(len(owner.frames) + 1)[-1][1] == list(range(10)))

    wait_until(all_told)


def test_a_caller_that_sends_garbage_is_dropped_alone(served: Served) -> None:
    served.start()
    owner, bad = served.caller(), served.caller()
    owner.init()
    bad.send([b"\xff" * 50])
    wait_until(lambda: bad.link.read() is None)
    worse = served.caller()
    worse.send(split_frames(CALL, ["not a header"], []))
    wait_until(lambda: worse.link.read() is None)
    owner.call(1, "tell", "fine")
    assert owner.answers(2)[-1] == (1, "fine")


@pytest.mark.parametrize("cls", [Notes, AsyncNotes])
def test_stop_with_drain_serves_what_was_sent(served: Served, cls: type) -> None:
    served.start()
    caller = served.caller()
    caller.init(cls)
    caller.call(1, "hold")
    wait_until(lambda: served.mailbox.running is not None)
    for call_id in range(2, 20):
        caller.call(call_id, "tell", call_id)
    latecomer = served.caller()
    latecomer.call(1, "tell", "late")
    served.mailbox.stop(drain=True)
    Notes.gate.set()
    served.thread.join(20)
    assert caller.answers(20)[2:] == [(call_id, call_id) for call_id in range(2, 20)]
    assert latecomer.answers(1) == [(1, "late")]
    assert Notes.cleaned == [None]


def test_stop_with_drain_serves_callers_that_have_only_just_come(served: Served) -> None:
    caller = served.caller()
    caller.init()
    caller.call(1, "tell", 1)
    served.mailbox.stop(drain=True)
    served.start()
    assert caller.answers(2) == [(0, None), (1, 1)]


def test_stop_without_drain_ends_after_the_running_message(served: Served) -> None:
    served.start()
    caller = served.caller()
    caller.init()
    caller.call(1, "hold")
    wait_until(lambda: served.mailbox.running is not None)
    caller.call(2, "tell", 2)
    served.mailbox.stop(drain=False)
    Notes.gate.set()
    served.thread.join(20)
    assert caller.answers(2) == [(0, None), (1, True)]
    assert not holds_within(0.02, lambda: caller.link.read())
    assert Notes.cleaned == [None]


@pytest.mark.parametrize("cls", [Notes, AsyncNotes])
def test_a_stop_message_ends_the_actor_and_not_the_mailbox(served: Served, cls: type) -> None:
    served.start()
    caller = served.caller()
    caller.init(cls)
    caller.call(1, "tell", 1)
    caller.stop(2)
    caller.call(3, "tell", 3)
    assert caller.answers(4) == [(0, None), (1, 1), (2, None), (3, "error stopped")]
    assert Notes.cleaned == [None]
    caller.init(cls, call_id=4)
    caller.call(5, "all")
    assert caller.answers(6)[-2:] == [(4, None), (5, [])]

"""The mailbox on a thread of the test, its callers at the other ends of socketpairs."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import pickle
import socket
import sys
import termios
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from meshrt.actor.actor import Actor
from meshrt.actor.callers import Message
from meshrt.actor.endpoint import concurrent_endpoint, endpoint
from meshrt.actor.execute import Executor
from meshrt.actor.mailbox import Mailbox
from meshrt.actor.setup import SetUp
from meshrt.selection import Extent, Shape
from meshrt.transport.link import Link
from meshrt.wire import codec
from meshrt.wire.frames import Frame, split_frames
from meshrt.wire.messages import CALL, ERROR, INIT, NO_REPLY, RESULT, STOP
from tests.support.waiting import holds_within, wait_until

VIEW: bytes = msgpack.packb([*Shape.from_extent(Extent(("n",), (1,))).to_wire(), b""])


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

    @endpoint
    async def hold_async(self) -> None:
        await asyncio.to_thread(Notes.gate.wait, 20)


class Caller:
    """One caller: its end of a link to the mailbox."""

    def __init__(self, mailbox: Mailbox) -> None:
        ours, theirs = socket.socketpair()
        self.link = Link(ours)
        self.frames: list[Frame] = []
        mailbox.callers.add([Link(theirs)], [])

    def init(self, cls: type = Notes, call_id: int = 0) -> None:
        parts, lengths = codec.encode((None, cls, (), {}, None))
        self.send(split_frames(INIT, [call_id, "Notes", VIEW, lengths], parts))

    def call(self, call_id: int, name: str, *args: Any, flags: int = 0) -> None:
        parts, lengths = codec.encode((args, {}))
        self.send(split_frames(CALL, [call_id, name, VIEW, lengths, flags], parts))

    def stop(self, call_id: int) -> None:
        self.send(split_frames(STOP, [call_id], []))

    def send(self, parts: list[Any]) -> None:
        assert self.link.send(parts)

    def is_read(self) -> bool:
        """Whether the mailbox has read all that was sent."""
        left = array.array("i", [0])
        fcntl.ioctl(self.link.fileno(), termios.TIOCOUTQ, left)
        return not left[0]

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
        executor = Executor(
            "m", 0, "notes", SetUp(), lambda context, remote: self.unhandled.append(remote.type), [], []
        )
        self.exits: list[tuple[str, BaseException]] = []
        self.mailbox = Mailbox(executor, lambda executor, error: self.exits.append((executor.name, error)))
        self.thread = threading.Thread(target=self.mailbox.serve)
        self.callers: list[Caller] = []
        self.handed_over = False

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
        self.hand_over()
        for link in (*self.links, *(caller.link for caller in self.callers)):
            link.close()

    def hand_over(self) -> tuple[list[Link], list[Message]]:
        """Take over what the mailbox has left, once."""
        if not self.handed_over:
            self.handed_over = True
            self.links, self.messages = self.mailbox.callers.hand_over()
        return self.links, self.messages


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
    wait_until(early.is_read)
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


@pytest.mark.parametrize("cls", [Notes, AsyncNotes])
def test_what_waits_is_counted_in_the_sockets_too_while_an_endpoint_keeps_the_thread(
    served: Served, cls: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.start()
    owner, others = served.caller(), [served.caller(), served.caller()]
    owner.init(cls)
    owner.call(1, "hold")
    mailbox = served.mailbox
    wait_until(lambda: mailbox.running is not None and mailbox.running.context.endpoint == "hold")
    for other in others:
        for call_id in (1, 2, 3):
            other.call(call_id, "tell", call_id)
    assert not any(other.is_read() for other in others)
    assert mailbox.waiting() == (6, False)
    monkeypatch.setattr("meshrt.actor.callers._PEEK", 100)
    assert mailbox.waiting() == (0, True)
    Notes.gate.set()
    assert [len(caller.answers(count)) for caller, count in ((owner, 2), (others[0], 3), (others[1], 3))] == [2, 3, 3]
    assert mailbox.waiting() == (0, False)
    assert mailbox.calls == 7


def test_an_event_loop_that_has_read_ahead_as_far_as_it_may_has_more_perhaps(served: Served) -> None:
    served.start()
    owner, other = served.caller(), served.caller()
    owner.init(AsyncNotes)
    owner.call(1, "hold_async")
    for call_id in range(40):
        other.call(call_id, "tell", call_id)
    wait_until(lambda: served.mailbox.waiting()[1])
    count, _ = served.mailbox.waiting()
    assert 16 <= count <= 40
    Notes.gate.set()
    assert len(other.answers(40)) == 40 and served.mailbox.waiting() == (0, False)


def test_a_caller_that_does_not_read_holds_nobody_up(served: Served) -> None:
    served.start()
    slow, quick = served.caller(), served.caller()
    slow.init()
    for call_id in range(1, 5):
        slow.call(call_id, "large", 1 << 20)
    quick.call(1, "tell", "still here")
    assert quick.answers(1) == [(1, "still here")]
    assert [len(value) for _, value in slow.answers(5)[1:]] == [1 << 20] * 4


@pytest.mark.row("N6")
@pytest.mark.parametrize("cls", [Notes, AsyncNotes])
def test_a_caller_that_does_not_read_its_answers_costs_little_memory(served: Served, cls: type) -> None:
    """Its calls are served when it reads, in their order; the others are served meanwhile."""
    slow, quick = served.caller(), served.caller()
    slow.init(cls)
    slow.call(1, "hold")
    for call_id in range(2, 30):
        slow.call(call_id, "large", 1 << 20)
    served.start()
    wait_until(slow.is_read)
    quick.call(1, "tell", "still here")
    Notes.gate.set()
    assert quick.answers(1) == [(1, "still here")]
    callers = served.mailbox.callers
    assert sum(link.backlog_bytes for link in callers.slow) < 6 << 20
    assert served.mailbox.waiting()[0] >= 20
    found = slow.answers(30)
    assert [call_id for call_id, _ in found] == list(range(30))
    assert all(len(value) == 1 << 20 for _, value in found[2:])
    assert served.mailbox.waiting() == (0, False)


def test_a_caller_that_reads_slowly_gets_all_answers_at_the_end(served: Served) -> None:
    """The end of the actor waits for each read, and not for a time in all."""
    slow = served.caller()
    slow.init(Notes)
    for call_id in range(1, 4):
        slow.call(call_id, "large", 4 << 20)
    served.start()
    wait_until(slow.is_read)
    served.mailbox.stop(drain=True)
    while len(slow.frames) < 4:
        slow.frames += slow.link.read() or ()
        time.sleep(0.03)  # together longer than one read is waited for
    assert [frame.header[0] for frame in slow.frames] == list(range(4))


@pytest.mark.parametrize("how", ["drain", "gone", "stop"])
@pytest.mark.parametrize("cls", [Notes, AsyncNotes])
def test_what_was_set_aside_is_not_lost(served: Served, cls: type, how: str) -> None:
    slow, quick = served.caller(), served.caller()
    slow.init(cls)
    slow.call(1, "hold")
    for call_id in range(2, 10):
        slow.call(call_id, "large", 1 << 20)
    slow.call(10, "tell", "last")
    served.start()
    wait_until(slow.is_read)
    quick.call(1, "tell", "first")
    Notes.gate.set()
    assert quick.answers(1) == [(1, "first")]
    assert served.mailbox.waiting()[0] > 1
    if how == "gone":
        slow.link.close()
        quick.call(2, "all")
        wait_until(lambda: served.mailbox.waiting() == (0, False))
        quick.call(3, "all")
        assert quick.answers(3)[-1] == (3, ["first", "last"])
    elif how == "drain":
        served.mailbox.stop(drain=True)
        assert [call_id for call_id, _ in slow.answers(11)] == list(range(11))
    else:
        quick.stop(2)
        served.thread.join(20)
        _, messages = served.hand_over()
        assert [frame.header[0] for _, frame in messages if frame.kind == CALL][-1] == 10


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
def test_a_stop_message_ends_it_and_leaves_the_callers_with_what_they_sent_behind(served: Served, cls: type) -> None:
    caller, other = served.caller(), served.caller()
    caller.init(cls)
    caller.call(1, "tell", 1)
    caller.stop(2)
    caller.call(3, "tell", 3)
    served.start()
    served.thread.join(20)
    assert served.mailbox.stopped and served.mailbox.executor.actor is None
    assert caller.answers(2) == [(0, None), (1, 1)]
    assert Notes.cleaned == [None]
    other.call(1, "tell", "unread")
    links, messages = served.hand_over()
    assert [(frame.kind, frame.header[0]) for _, frame in messages] == [(STOP, 2), (CALL, 3)]
    assert len(links) == 2 and not any(link.closed for link in links)
    served.mailbox.callers.wake()  # from a thread that has not heard of it


def test_what_came_before_init_is_left_over_too(served: Served) -> None:
    caller = served.caller()
    caller.call(1, "tell", 1)
    caller.stop(2)
    served.start()
    served.thread.join(20)
    _, messages = served.hand_over()
    assert [(frame.kind, frame.header[0]) for _, frame in messages] == [(CALL, 1), (STOP, 2)]


def test_an_answer_that_has_not_been_taken_is_left_over_whole(served: Served) -> None:
    """Whoever takes the callers over writes on where the mailbox has stopped."""
    caller = served.caller()
    caller.init()
    caller.call(1, "large", 8 << 20)
    caller.stop(2)
    served.start()
    served.thread.join(20)
    links, _ = served.hand_over()
    assert links[0].backlog

    def flushed() -> bool:
        caller.frames += caller.link.read() or ()
        return links[0].flush()

    wait_until(flushed)
    assert [len(value or b"") for _, value in caller.answers(2)] == [0, 8 << 20]


class Waiting(Notes):
    """Waits in its event loop, on request without minding a cancellation."""

    entered = threading.Event()
    noted: list[str] = []  # noqa: RUF012 - shared with the test on purpose

    @endpoint
    async def wait(self, how: str) -> str:
        Waiting.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "swallow":
                return "swallowed"
            raise
        finally:
            await asyncio.sleep(0)
            Waiting.noted.append("finally")
        return ""

    @concurrent_endpoint
    async def wait_beside(self, how: str) -> str:
        return await self.wait(how)

    @concurrent_endpoint
    async def stubborn(self) -> None:
        for _ in range(12):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    @endpoint
    async def cancel_all(self) -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    @concurrent_endpoint
    async def cancel_all_beside(self) -> None:
        await self.cancel_all()

    @endpoint
    async def changing(self, size: int) -> pickle.PickleBuffer:
        data = bytearray(b"x" * size)

        async def change() -> None:
            data[:] = b"y" * size
            Waiting.noted.append("changed")

        self.task = asyncio.create_task(change())
        return pickle.PickleBuffer(data)

    @endpoint
    async def start_task(self, code: object) -> None:
        async def end() -> None:
            sys.exit(code)  # type: ignore[arg-type]  # whatever a user gives

        self.task = asyncio.create_task(end())

    @endpoint
    async def await_task(self, code: object) -> None:
        await self.start_task(code)
        await self.task


@pytest.fixture
def waiting(served: Served) -> Caller:
    Waiting.entered.clear()
    Waiting.noted.clear()
    served.start()
    caller = served.caller()
    caller.init(Waiting)
    return caller


@pytest.mark.parametrize("how", ["obey", "swallow"])
def test_cancel_ends_a_call_that_waits_and_what_it_has_to_do_is_done(served: Served, waiting: Caller, how: str) -> None:
    waiting.call(1, "wait", how)
    assert Waiting.entered.wait(20)
    wait_until(lambda: not served.mailbox.in_user_code())
    served.mailbox.stop(drain=False)
    served.mailbox.cancel(cleanup=True)
    served.thread.join(20)
    assert Waiting.noted == ["finally"] and Notes.cleaned == [None]
    assert waiting.answers(1 if how == "obey" else 2)[1:] == ([] if how == "obey" else [(1, "swallowed")])
    served.mailbox.cancel(cleanup=True)  # when there is nothing any more


def test_cancel_hits_only_the_call_that_runs(served: Served, waiting: Caller) -> None:
    waiting.answers(1)
    served.mailbox.cancel(cleanup=True)
    waiting.call(1, "wait", "swallow")
    assert Waiting.entered.wait(20)
    served.mailbox.cancel(cleanup=True)
    waiting.call(2, "tell_quietly")
    waiting.call(3, "tell", "on")
    assert waiting.answers(4)[1:] == [(1, "swallowed"), (2, "error "), (3, "on")]


class Interrupted(Notes):
    """Is interrupted in its endpoint, and cancelled for the same reason while it cleans up."""

    mailbox: Mailbox

    @endpoint
    async def hold_the_loop(self) -> None:
        Interrupted.mailbox.interrupt(cleanup=True)  # what a signal handler does, on top of this frame

    async def __cleanup__(self, exc: object) -> None:  # type: ignore[override]  # both are allowed
        Interrupted.mailbox.cancel(cleanup=True)
        for _ in range(3):
            await asyncio.sleep(0)
        Notes.cleaned.append(exc)


def test_what_is_interrupted_cleans_up_undisturbed(served: Served) -> None:
    Interrupted.mailbox = served.mailbox
    served.start()
    caller = served.caller()
    caller.init(Interrupted)
    caller.call(1, "hold_the_loop")
    served.thread.join(20)
    assert Notes.cleaned == [None]


def test_a_stopped_actor_gives_its_concurrent_calls_some_time(
    served: Served, waiting: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshrt.actor.concurrent._GRACE", 0.1)
    waiting.call(1, "wait_beside", "obey")
    waiting.call(2, "wait_beside", "swallow")
    waiting.call(3, "wait_beside", "obey", flags=NO_REPLY)
    waiting.call(4, "tell", "on")
    waiting.stop(5)
    served.thread.join(20)
    assert waiting.answers(4)[1:] == [(4, "on"), (1, "error cancelled"), (2, "swallowed")]
    assert Waiting.noted == ["finally"] * 3 and Notes.cleaned == [None]


def test_a_call_that_does_not_mind_being_cancelled_is_answered(
    served: Served, waiting: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshrt.actor.concurrent._GRACE", 0.1)
    monkeypatch.setattr("meshrt.actor.concurrent._CANCELLED", 0.1)
    waiting.call(1, "stubborn")
    waiting.stop(2)
    served.thread.join(20)
    assert waiting.answers(2)[1:] == [(1, "error cancelled")]
    assert Notes.cleaned == [None]


@pytest.mark.parametrize("beside", [True, False])
def test_user_code_that_cancels_every_task_leaves_the_actor_alive(
    served: Served, waiting: Caller, beside: bool
) -> None:
    waiting.call(1, "cancel_all_beside" if beside else "cancel_all")
    waiting.call(2, "tell", "on")
    assert dict(waiting.answers(3)[1:])[2] == "on"
    waiting.call(3, "tell", "and on")
    assert waiting.answers(4)[3] == (3, "and on")


def test_what_an_async_endpoint_returned_may_be_changed_by_a_task(served: Served, waiting: Caller) -> None:
    waiting.answers(1)
    waiting.call(1, "changing", 8 << 20)
    wait_until(lambda: Waiting.noted == ["changed"], 20)
    ((_, value),) = waiting.answers(2)[1:]
    assert bytes(value) == b"x" * (8 << 20)


@pytest.mark.parametrize("code", [3, "in words"])
def test_an_exit_in_a_task_is_told_and_the_loop_goes_on(served: Served, waiting: Caller, code: object) -> None:
    waiting.call(1, "start_task", code)
    waiting.call(2, "tell", "on")
    assert waiting.answers(3)[1:] == [(1, None), (2, "on")]
    wait_until(lambda: served.exits)
    ((name, error),) = served.exits
    assert name == "notes" and isinstance(error, SystemExit) and error.code == code
    waiting.call(3, "await_task", code)
    assert waiting.answers(4)[3:] == [(3, "error ")]
    wait_until(lambda: len(served.exits) == 2)

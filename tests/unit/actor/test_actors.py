"""The actors of a process: which thread serves whom, and what is left of one that was stopped."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from meshrt.actor.actor import Actor
from meshrt.actor.actors import ActorHost
from meshrt.actor.control import ControlThread
from meshrt.actor.endpoint import endpoint
from meshrt.actor.mailbox import Mailbox
from meshrt.hooks.operations import Report
from meshrt.selection import Extent, Shape
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.link import Link
from meshrt.wire import codec
from meshrt.wire.frames import Frame, split_frames
from meshrt.wire.messages import CALL, ERROR, INIT, RESULT, STATE, STOP, STORED
from meshrt.wire.operations import ActorBegun, ActorEnded
from tests.support.waiting import wait_until

VIEW: bytes = msgpack.packb([*Shape.from_extent(Extent(("n",), (1,))).to_wire(), b""])


class Where(Actor):
    @endpoint
    def thread(self) -> str:
        return threading.current_thread().name

    @endpoint
    async def thread_async(self) -> str:
        return threading.current_thread().name


class Caller:
    """A link to an actor, as the control thread delivers it."""

    def __init__(self, host: ActorHost, control: ControlThread, actor: str, *parts: Any) -> None:
        ours, theirs = socket.socketpair()
        self.link = Link(ours)
        control.call_soon(lambda: host.deliver(actor, Link(theirs), b"".join(parts)))

    def send(self, parts: list[Any]) -> None:
        assert self.link.send(parts)

    def frames(self, count: int) -> list[Frame]:
        """Wait for so many frames."""
        found: list[Frame] = []

        def enough() -> bool:
            found.extend(self.link.read() or ())
            return len(found) >= count

        wait_until(enough, 20, f"{count} frames")
        return found

    def ask(self, name: str) -> Any:
        self.send(call(name))
        (frame,) = self.frames(1)
        assert frame.kind == RESULT
        return codec.decode(frame.payload, frame.header[1])


def init() -> list[Any]:
    parts, lengths = codec.encode((None, Where, (), {}, None))
    return split_frames(INIT, [1, "Where", VIEW, lengths], parts)


def call(name: str, call_id: int = 2) -> list[Any]:
    parts, lengths = codec.encode(((), {}))
    return split_frames(CALL, [call_id, name, VIEW, lengths, 0], parts)


def stop(call_id: int = 3) -> list[Any]:
    return split_frames(STOP, [call_id], [])


class Process:
    """An `ActorHost` with its control thread, and a thread that plays the main thread."""

    def __init__(self, folder: Path) -> None:
        self.told: list[Report] = []
        self.main: queue.SimpleQueue[Mailbox | None] = queue.SimpleQueue()
        self.host = ActorHost("m", 0, self.told.append, self.main)
        listener = listening_socket(str(folder / "0"))
        self.control = ControlThread(listener, None, b"s" * 32, "m/0/", self.host.deliver, self.stop, {})
        self.host.attach(self.control)
        unused: Any = None
        self.control.start(None, unused)
        self.main_thread = threading.Thread(target=self.serve, name="main")
        self.main_thread.start()
        self.callers: list[Caller] = []

    def stop(self, drain: bool, _why: str) -> None:
        self.host.stop(drain)

    def serve(self) -> None:
        while (mailbox := self.main.get()) is not None:
            self.host.serve(mailbox)

    def caller(self, actor: str, *parts: Any) -> Caller:
        self.callers.append(Caller(self.host, self.control, actor, *parts))
        return self.callers[-1]

    def spawn(self, actor: str) -> Caller:
        """Begin an actor, as its owner does."""
        caller = self.caller(actor, *init())
        frames = caller.frames(1)
        while frames[-1].kind == STATE:
            frames = caller.frames(1)
        assert (frames[-1].kind, frames[-1].header) == (RESULT, [1, None])
        return caller

    def end(self) -> None:
        self.host.stop(False)
        self.main_thread.join(20)
        assert not self.main_thread.is_alive() and self.host.join(20)
        self.control.close()
        self.host.close(20)
        for caller in self.callers:
            caller.link.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.end()


def test_the_first_actor_has_the_main_thread_and_each_further_one_its_own(process: Process) -> None:
    callers = [process.spawn(name) for name in ("a", "b", "c")]
    assert [caller.ask("thread") for caller in callers] == ["main", "meshrt-b", "meshrt-c"]
    assert process.told == [ActorBegun("a"), ActorBegun("b"), ActorBegun("c")]


@pytest.mark.parametrize("name", ["thread", "thread_async"])
def test_the_actor_after_a_stopped_one_has_the_main_thread(process: Process, name: str) -> None:
    for actor in ("a", "b", "a"):
        caller = process.spawn(actor)
        beside = process.spawn("beside")
        assert (caller.ask(name), beside.ask(name)) == ("main", "meshrt-beside")
        for ended in (beside, caller):
            ended.send(stop())
            assert [frame.kind for frame in ended.frames(2)] == [STATE, RESULT]
    wait_until(lambda: not any(thread.name == "meshrt-beside" for thread in threading.enumerate()))
    assert process.host.mailboxes == {} and process.host.main_mailbox is None


def test_each_beginning_and_each_end_of_an_actor_is_told(process: Process) -> None:
    for _ in range(2):
        process.spawn("a").send(stop())
        wait_until(lambda: process.told[-1] == ActorEnded("a"))
    assert process.told == [ActorBegun("a"), ActorEnded("a")] * 2


def test_whoever_calls_a_stopped_actor_is_refused_and_reaches_it_when_it_begins_anew(process: Process) -> None:
    owner, other = process.spawn("a"), process.caller("a")
    assert other.ask("thread") == "main"
    owner.send(stop())
    assert [frame.kind for frame in owner.frames(2)] == [STATE, RESULT]
    late = process.caller("a", *call("thread"))
    other.send(call("thread"))
    for caller in (late, other):
        state, refusal = caller.frames(2)
        assert (state.kind, state.header) == (STATE, [0, True])
        assert (refusal.kind, refusal.header[0], refusal.header[3]) == (ERROR, 2, "stopped")
    process.spawn("a")
    for caller in (owner, other, late):
        assert [frame.header for frame in caller.frames(1)] == [[0, False]]
        assert caller.ask("thread") == "main"


def test_stop_and_init_and_calls_in_one_piece(process: Process) -> None:
    """All of it comes behind the proof of the caller; a caller that came before keeps its link."""
    other = process.caller("a", *call("thread", 9))
    owner = process.caller("a", *init(), *stop(2), *call("thread", 3), *init(), *call("thread", 4), *stop(5))
    frames = owner.frames(9)
    assert [frame.header[0] for frame in frames] == [1, 0, 2, 3, 0, 1, 4, 0, 5]
    assert [frame.kind for frame in frames] == [RESULT, STATE, RESULT, ERROR, STATE, RESULT, RESULT, STATE, RESULT]
    kinds = [frame.kind for frame in other.frames(4)]
    assert kinds == [RESULT, STATE, STATE, STATE]


def test_what_is_in_shared_memory_is_claimed_once_although_its_actor_begins_late(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[Frame] = []
    refused: list[threading.Thread] = []
    start = threading.Thread.start

    def claim(frame: Frame) -> Frame:
        claimed.append(frame)
        return frame._replace(kind=frame.kind & ~STORED)

    def start_or_refuse(thread: threading.Thread) -> None:
        if thread.name == "meshrt-b" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    runtime = SimpleNamespace(store=SimpleNamespace(claim=claim))
    monkeypatch.setattr("meshrt.actor.callers.current_runtime", lambda: runtime)
    monkeypatch.setattr(threading.Thread, "start", start_or_refuse)
    process.spawn("a")
    parts, lengths = codec.encode(((), {}))
    stored = split_frames(CALL | STORED, [2, "thread", VIEW, lengths, 0], parts)
    answers = process.caller("b", *init(), *stored).frames(2)
    assert [(frame.kind, frame.header[0]) for frame in answers] == [(RESULT, 1), (RESULT, 2)]
    assert len(refused) == 1 and len(claimed) == 1


def test_a_caller_that_sends_garbage_behind_its_proof_begins_nothing(process: Process) -> None:
    bad = process.caller("a", b"\xff" * 50)
    wait_until(lambda: bad.link.read() is None)
    assert process.host.mailboxes == {}


@pytest.mark.parametrize("drain", [True, False])
def test_an_actor_that_begins_when_all_end_ends_too(process: Process, drain: bool) -> None:
    process.spawn("a")
    process.host.stop(drain)
    process.main_thread.join(20)
    late = process.caller("late", *init(), *call("thread"))
    if drain:
        assert [frame.header[0] for frame in late.frames(2)] == [1, 2]
    process.control.settle(20)
    assert process.host.join(20)


def test_after_an_interrupt_nothing_more_is_served(process: Process) -> None:
    owner = process.spawn("a")
    process.host.stop(True)
    process.host.interrupt(cleanup=True)
    process.host.stop(True)
    assert not process.host.mailboxes["a"]._ending
    owner.send(call("thread"))
    process.main_thread.join(20)
    assert not process.main_thread.is_alive()

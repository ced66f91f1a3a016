"""One IDE on one rank, from its attach to each of its ends: on an engine that says what the test wants."""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from meshrt.debug.dap.rank import channel
from meshrt.debug.dap.rank import pump as pumps
from meshrt.debug.dap.wire import encode, event, response
from meshrt.errors import MeshError
from tests.support.waiting import wait_until
from tests.unit.debug.dap.rank.pump_fakes import FakeEngine, Rank
from tests.unit.debug.fakes import WAIT


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    with closing(Rank(monkeypatch)) as found:
        yield found


def left(rank: Rank, engine: FakeEngine, why: str) -> None:
    """The IDE is lost: a goodbye is said for it, and all of it has ended."""
    goodbye = engine.hears()
    assert goodbye["command"] == "disconnect"
    engine.answers(goodbye)
    assert rank.over()["why"] == why
    assert engine.done[-1] == "stop"


def test_from_attach_to_goodbye(rank: Rank) -> None:
    # What is said before the threads are free is heard when they are.
    rank.pump.begin()
    rank.asks("initialize")
    wait_until(lambda: not select.select([rank.pump._wake_fd], [], [], 0)[0], WAIT)
    assert rank._engines.empty()
    rank.pump.take()
    engine = rank.opened()
    engine.answers(engine.hears(), body={"supportsLogPoints": True})
    assert rank.hears()["body"] == {"supportsLogPoints": True}

    # It is free for another IDE before this one is told that it has left.
    rank.asks("disconnect")
    engine.answers(engine.hears())
    rank.event("dap.leaving")
    assert rank.pump.leaving
    assert rank.hears()["command"] == "disconnect"
    assert rank.over()["why"] == ""
    assert engine.done == ["stop"]


def test_deadlines_stand_still_while_a_thread_stands(rank: Rank) -> None:
    engine = rank.attached()
    engine.stops(1)
    assert rank.event("dap.holds")["held"] and rank.services.holds == 1
    engine.stops(2)
    assert [rank.hears()["body"]["threadId"] for _ in range(2)] == [1, 2]
    engine.says(seq=0, type="event", event="continued", body={"threadId": 1, "allThreadsContinued": False})
    assert rank.hears()["event"] == "continued" and rank.services.holds == 1
    # One that is refused lets nothing go on; one that is obeyed, all.
    rank.asks("continue")
    engine.answers(engine.hears(), success=False)
    assert not rank.hears()["success"] and rank.services.holds == 1
    rank.asks("continue")
    engine.answers(engine.hears())
    assert not rank.event("dap.holds")["held"] and rank.services.holds == 0
    rank.pump.close("over")
    assert rank.hears()["success"]
    left(rank, engine, "over")


def test_what_is_refused_has_nothing_in_its_way(rank: Rank) -> None:
    engine = rank.attached()
    engine.stops()
    rank.event("dap.holds")
    rank.hears()
    # What is evaluated is interrupted after a while if the thread is to go on and does not.
    for answers in (False, True):
        rank.asks("stepIn")
        asked = engine.hears()
        if answers:
            engine.answers(asked, success=False)
            rank.hears()
        rank.services.run_next()
        assert rank.services.later.empty() == answers
        while not rank.services.later.empty():
            rank.services.run_next()
    rank.pump.close("over")
    engine.answers(engine.hears())
    rank.event("dap.holds")
    assert rank.over()["why"] == "over"


def test_an_ide_that_is_lost_in_the_middle_of_a_message_while_a_thread_stands(rank: Rank) -> None:
    engine = rank.attached()
    engine.stops()
    rank.event("dap.holds")
    rank.hears()
    rank.pump.feed(encode({"seq": 9, "type": "request", "command": "evaluate", "arguments": {}})[:-3])
    rank.pump.close("the IDE has disconnected")
    goodbye = engine.hears()  # and nothing of that message before it
    assert goodbye["command"] == "disconnect"
    engine.answers(goodbye)
    assert not rank.event("dap.holds")["held"]
    assert rank.over()["why"] == "the IDE has disconnected"


def test_an_engine_that_dies_while_a_thread_stands(rank: Rank) -> None:
    engine = rank.attached()
    engine.stops()
    rank.event("dap.holds")
    rank.hears()
    engine.dies()
    assert not rank.event("dap.holds")["held"]
    assert rank.over()["why"] == "the engine has ended"
    assert engine.done == ["stop"]


def test_an_engine_that_does_not_say_goodbye(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("meshrt.debug.dap.engine.engine._PATIENCE", 0.01)
    engine = rank.attached()
    rank.pump.close("the IDE has disconnected")
    assert rank.over()["why"] == "the IDE has disconnected"
    assert "does not detach properly" in caplog.text and engine.done == ["stop"]


def test_an_engine_that_cannot_be_had(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> FakeEngine:
        raise MeshError("the ranks' Python has no debugpy")

    monkeypatch.setattr(pumps, "Engine", none)
    rank.pump.begin()
    rank.pump.take()
    assert rank.over()["why"] == "the ranks' Python has no debugpy"
    # A thread that has waited for the engine is the debugger's.
    assert not rank.pump.breakpoint(sys._getframe())


def test_an_ide_that_leaves_before_the_threads_are_free(rank: Rank) -> None:
    rank.pump.begin()
    rank.pump.close("the IDE has disconnected")
    assert rank.over()["why"] == "the IDE has disconnected"
    assert rank._engines.empty()
    rank.pump.take()  # too late, and no error


def test_garbage_ends_it(rank: Rank) -> None:
    engine = rank.attached()
    rank.pump.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert "Content-Length" in rank.over()["why"]
    assert engine.done == ["stop"]


def test_another_ide_takes_over_what_stands(rank: Rank) -> None:
    engine = rank.attached()
    engine.stops(7)
    rank.event("dap.holds")
    rank.hears()
    rank.pump.feed(b"Content-Length: 100\r\n\r\n{")
    rank.pump.orphan()
    # Nobody hears of it.
    engine.stops(8)
    wait_until(lambda: rank.pump._passing._stops.has_stopped(8), WAIT)
    assert rank.pump.adopt(2)
    assert rank.event("dap.opened")["channel"] == 2
    assert rank.event("dap.holds")["held"]
    rank.asks("configurationDone")
    engine.answers(engine.hears())
    # What stands is told behind the answer, as an IDE knows threads by then.
    assert rank.hears()["command"] == "configurationDone"
    assert [rank.hears()["body"] for _ in range(2)] == [{"threadId": 7}, {"threadId": 8}]
    assert engine.done == ["forget_breakpoints"]
    rank.pump.close("over")
    engine.answers(engine.hears())
    assert not rank.event("dap.holds")["held"]
    assert rank.over()["why"] == "over"


def test_an_answer_is_for_the_ide_that_has_asked(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_CHUNK", 100)
    engine = rank.attached()
    engine.stops()
    rank.event("dap.holds")
    rank.hears()
    rank.asks("evaluate")
    rank.asks("continue")
    asked = [engine.hears(), engine.hears()]
    # The first part of a long value is told when that IDE is lost, and another one is there.
    rank.services.goes_on.clear()
    engine.says(response(asked[0], {"result": "x" * 150}), event("output", output="x"), response(asked[1]))
    assert rank.event("dap.data")["channel"] == 1
    rank.pump.orphan()
    assert rank.pump.adopt(2)
    rank.services.goes_on.set()
    # It is told no part of that, and nothing of what it has not asked for; but what has gone on stands no more.
    assert rank.event("dap.holds") == {"channel": 1, "held": False, "places": {}}
    assert rank.event("dap.opened")["channel"] == 2
    assert not rank.event("dap.holds")["held"] and rank.services.holds == 0
    rank.asks("threads")
    engine.says(response(asked[0]), response(engine.hears()))
    assert rank.hears()["command"] == "threads" and rank.services.events.empty()
    rank.pump.close("over")
    left(rank, engine, "over")


@pytest.mark.parametrize("stands", [False, True])
def test_where_nothing_stands_that_an_ide_has_left_the_rank_is_nobodys(rank: Rank, stands: bool) -> None:
    engine = rank.attached()
    if stands:
        engine.stops()
        rank.event("dap.holds")
        rank.hears()
        rank.asks("continue")
        asked = engine.hears()
    rank.pump.orphan()
    if stands:
        assert select.select([engine._its], [], [], 0)[0] == [] and not rank.pump.leaving
        engine.answers(asked)  # what it has asked for last resumes it
        assert not rank.event("dap.holds")["held"]
    left(rank, engine, "the IDE has disconnected")
    assert not rank.pump.adopt(2)


def test_nobody_takes_over_what_has_ended(rank: Rank) -> None:
    engine = rank.attached()
    rank.pump.orphan()
    engine.dies()
    assert rank.ended.get(timeout=WAIT) is rank.pump
    assert not rank.pump.adopt(2)


def test_an_ide_that_takes_nothing_is_sent_no_more(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    rank.pump._served._window = 100
    engine = rank.attached()
    engine.says(seq=1, type="event", event="output", body={"output": "x" * 200})
    assert rank.hears()["seq"] == 1
    engine.says(seq=2, type="event", event="output", body={})
    # It goes on hearing the IDE meanwhile.
    rank.asks("threads")
    assert engine.hears()["command"] == "threads"
    rank.asks("threads")
    assert engine.hears()["command"] == "threads"
    assert rank.services.events.empty()
    rank.pump.taken(300)
    assert rank.hears()["seq"] == 2
    rank.pump.close("over")
    left(rank, engine, "over")


def test_what_is_too_long_for_an_ide(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MESSAGE_MAX", 1000)
    engine = rank.attached()
    engine.says(seq=1, type="event", event="output", body={"output": "x" * 2000})
    assert "an event was not sent" in rank.event("dap.said")["text"]
    rank.asks("evaluate")
    engine.answers(engine.hears(), body={"result": "x" * 2000})
    answer = rank.hears()
    assert not answer["success"] and answer["request_seq"] == 1 and "show a part of the value" in answer["message"]
    rank.pump.close("over")
    left(rank, engine, "over")


def test_a_breakpoint_waits_for_the_engine_and_a_late_one_for_its_end(rank: Rank) -> None:
    stopped: list[bool] = []
    thread = threading.Thread(target=lambda: stopped.append(rank.pump.breakpoint(sys._getframe())))
    thread.start()
    engine = rank.attached()
    thread.join(WAIT)
    assert stopped == [True] and engine.done == ["breakpoint"]
    rank.pump.signalled(sys._getframe())
    assert engine.done == ["breakpoint", "suspend"]

    # While it leaves: the debugger has the thread once the engine has ended.
    rank.pump.close("the IDE has disconnected")
    late = threading.Thread(target=lambda: stopped.append(rank.pump.breakpoint(sys._getframe())))
    late.start()
    goodbye = engine.hears()
    assert stopped == [True]
    engine.answers(goodbye)
    rank.over()
    late.join(WAIT)
    assert stopped == [True, False] and engine.done == ["breakpoint", "suspend", "stop"]
    rank.pump.signalled(sys._getframe())  # a signal that comes late

"""Stopping ranks that run: wherever they are, and without a trace afterwards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from meshrt import ActorError, MeshError, proc_mesh
from meshrt.debug.rank_operations import (
    BreakSpec,
    Ended,
    Interrupted,
    InterruptRank,
    Resumed,
    SetBreaks,
    Stopped,
)
from tests.debug import busy
from tests.debug.busy import AsyncBusy, Busy, line_of
from tests.debug.desk import WAIT, Desk, desk
from tests.support.asking import where
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

LATER = sys.version_info >= (3, 12)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def worker(gate: Path) -> Any:
    return proc_mesh(gpus=1).spawn("worker", Busy, str(gate)).get(WAIT)


@pytest.mark.parametrize(
    ("name", "mark", "result"),
    [
        ("receive", "recv", b"hello"),
        ("lock", "lock", "locked"),
        ("take", "get", "item"),
        ("wait", "event", "open"),
        ("semaphore", "semaphore", "a slot"),
        ("condition", "condition", True),
        ("join", "join", False),
    ],
)
def test_a_blocked_call_is_interrupted_and_goes_on(worker: Any, gate: Path, name: str, mark: str, result: Any) -> None:
    answer = getattr(worker, name).call_one()
    with desk() as root:
        for _ in range(2):
            stop = until_at(root, line_of(mark))
            assert stop.reason == "interrupt"
            assert stop.endpoint == name
            assert stop.place.file == busy.__file__
            assert f"in {name}" not in stop.text
            assert root.show("p self.state").text == "{'turns': 0}\n"
            root.let_go()
        until_at(root, line_of(mark))
        gate.touch()
        assert root.step("n").place.line == line_of(mark) + 1
        root.let_go()
        assert answer.get(WAIT) == result
        root.event(Ended)


def until_at(root: Desk, line: int) -> Stopped:
    """Interrupt rank 0 until it stands on ``line``: it may only be on its way there."""
    while True:
        answer = root.request_stop()
        if answer.state == "idle":
            continue
        stop = root.stopped()
        if not line or stop.place.line == line:
            return stop
        root.let_go()


def test_a_loop_is_interrupted_and_stepped(worker: Any) -> None:
    with desk() as root:
        answer = worker.loop.call_one()
        stop = until_at(root, 0)
        assert stop.place.function == "loop"
        while root.step("n").place.line != line_of("loop"):
            pass
        root.show("!turns = 0")
        while root.step("n").place.line != line_of("loop"):
            pass
        assert root.show("p turns").text == "1\n"
        assert root.request_stop().state == "stopped"
        root.show("!go = False")
        root.let_go()
        assert answer.get(WAIT) == 2
        assert worker.traced.call_one().get(WAIT) == "None no tool"


def test_a_loop_of_one_line(worker: Any) -> None:
    with desk() as root:
        answer = worker.tight.call_one()
        until_at(root, line_of("tight"))
        root.show("!go = False")
        while root.step("n").place.line != line_of("after_tight"):
            pass  # each turn begins on the same line
        root.let_go()
        assert answer.get(WAIT) == "done"


def test_a_sleep_goes_on_after_the_interrupt(worker: Any) -> None:
    with desk() as root:
        answer = worker.sleep.call_one()
        until_at(root, line_of("sleep"))
        root.let_go()
        assert root.request_stop().state == "asked"  # still there: it sleeps on
        assert root.stopped().place.line == line_of("sleep")
        root.show("import time")
        root.let_go("q")
        with pytest.raises(ActorError, match="a person aborted"):
            answer.get(WAIT)
        assert worker.short.call_one().get(WAIT) == 1


def test_a_rank_that_waits_for_another_one(gate: Path) -> None:
    procs = proc_mesh(gpus=2)
    worker = procs.spawn("worker", Busy, str(gate)).get(WAIT)
    other = worker.slice(gpus=1)
    worker.slice(gpus=0).know.call_one(other).get(WAIT)
    answer = worker.slice(gpus=0).asks.call_one()
    with desk() as root:
        stop = until_at(root, line_of("call"))
        assert stop.place.function == "asks"
        root.type("n")  # over the call that waits
        root.event(Resumed)
        assert until_at(root, line_of("call")).reason == "interrupt"
        gate.touch()
        assert root.step("n").place.line == line_of("called")
        assert root.show("p answer").text == "'open'\n"
        root.let_go()
        assert answer.get(WAIT) == "it said open"


def test_being_looked_at_does_not_count_as_going_on(gate: Path) -> None:
    """For how long a call stands is what a person wants to know of it, also after having looked."""
    mesh = proc_mesh(gpus=2)
    worker: Any = mesh.spawn("worker", Busy, str(gate)).get(WAIT)
    second = worker.slice(gpus=1)
    worker.know.call(second).get(WAIT)
    answers = [second.receive.call_one(), worker.slice(gpus=0).asks.call_one()]

    def seconds() -> list[float]:
        found = where("worker")
        return [found[rank][0]["since"] if found[rank][0]["state"] == "blocked" else 0.0 for rank in (0, 1)]

    wait_until(lambda: min(seconds()) > 0.3, WAIT, "both stand")
    before = seconds()
    with desk() as root:
        for rank in (0, 1):
            assert root.request_stop(rank).state == "asked"
            root.stopped(rank)
            assert root.show("p self.state", rank).text == "{'turns': 0}\n"
            where("worker")  # while it stands at the prompt
            root.let_go(rank=rank)
    wait_until(lambda: min(seconds()) > 0, WAIT, "both stand again")
    assert all(now > then for now, then in zip(seconds(), before, strict=True))
    gate.touch()
    for answer in answers:
        answer.get(WAIT)


def test_two_interrupts_stop_once(worker: Any, gate: Path) -> None:
    with desk() as root:
        answer = worker.loop.call_one()
        while root.request_stop().state == "idle":
            pass
        asked = [root.begin(InterruptRank("worker")) for _ in range(20)]
        assert {one.result(WAIT).same.state for one in asked} <= {"asked", "stopped"}
        root.stopped()
        root.let_go()
        gate.touch()
        answer.get(WAIT)
        root.event(Ended)
        assert root.quiet(Stopped)


def test_nothing_to_stop(worker: Any) -> None:
    with desk() as root:
        worker.short.call_one().get(WAIT)
        answer = root.request_stop()
        assert answer == Interrupted("idle", "the actor waits for messages")
        with pytest.raises(MeshError, match="no actor 'nobody' on this rank; it has worker"):
            root.request_stop(actor="nobody")


def test_an_interrupt_that_comes_too_late_leaves_nothing(worker: Any) -> None:
    with desk() as root:
        for _ in range(300):
            answer = worker.short.call_one()
            asked = root.begin(InterruptRank("worker"))
            if asked.result(WAIT).same.state == "asked" and not answer.done():
                while not answer.done():
                    if not root.quiet(Stopped):
                        root.stopped()
                        root.let_go()
            assert answer.get(WAIT) == 1
        while not root.quiet(Stopped):
            root.stopped()
            root.let_go()
        assert worker.traced.call_one().get(WAIT) == "None no tool"
        assert root.quiet(Stopped)


def test_a_forked_child_is_not_affected(worker: Any) -> None:
    with desk() as root:
        root.request_stop()
        assert worker.fork.call_one().get(WAIT) == 3
        root.ask(SetBreaks([BreakSpec(1, "busy.py", line_of("count"))]))
        assert worker.fork.call_one().get(WAIT) == 3
        # Its own breakpoint() is Python's: pdb, which finds nobody at its standard input.
        assert worker.fork_and_break.call_one().get(WAIT) == 5


def test_a_waiting_coroutine_shows_its_stack() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", AsyncBusy).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        stop = until_at(root, line_of("deep"))
        assert stop.place.function == "deep"
        assert root.show("p inner, level").text == "(42, 0)\n"
        where = root.show("w").text
        assert where.count("deep()") == 4
        assert "wait()" in where
        root.show("u")
        assert root.show("p level").text == "1\n"
        root.show("d")
        root.let_go()
        until_at(root, line_of("deep"))
        root.show("!self.event.set()")
        assert root.step("n").place.line == line_of("woken")
        root.let_go()
        assert answer.get(WAIT) == "woken 42"
        assert worker.value.call_one().get(WAIT) == 5


def test_a_gather_shows_what_is_left() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", AsyncBusy).get(WAIT)
    with desk() as root:
        answer = worker.gathered.call_one()
        until_at(root, line_of("deep"))
        root.show("!self.event.set()")
        root.let_go()
        assert answer.get(WAIT) == ["woken 42", "slept"]


def test_a_waiting_coroutine_is_aborted() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", AsyncBusy).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        until_at(root, line_of("deep"))
        root.let_go("q")
        with pytest.raises(ActorError, match="a person aborted this endpoint"):
            answer.get(WAIT)
        assert worker.value.call_one().get(WAIT) == 5


def test_an_event_loop_that_is_busy() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", AsyncBusy).get(WAIT)
    with desk() as root:
        answer = worker.spin.call_one()
        until_at(root, 0)
        root.show("!go = False")
        root.let_go()
        assert answer.get(WAIT) == "spun"


def test_an_idle_event_loop() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", AsyncBusy).get(WAIT)
    with desk() as root:
        worker.value.call_one().get(WAIT)
        assert root.request_stop().state == "idle"


def test_the_thread_of_a_second_actor(gate: Path) -> None:
    procs = proc_mesh(gpus=1)
    procs.spawn("first", Busy, str(gate)).get(WAIT)
    worker = procs.spawn("worker", Busy, str(gate)).get(WAIT)
    with desk() as root:
        for name in ("tight", "loop"):
            answer = getattr(worker, name).call_one()
            if not LATER:
                with pytest.raises(MeshError, match=r"rank only; to stop it: break worker\.ENDPOINT \("):
                    until_at(root, 0)
                gate.touch()
                procs.stop(0)
                return
            until_at(root, 0)
            root.show("!go = False")
            root.let_go()
            answer.get(WAIT)
            root.event(Ended)
            assert worker.traced.call_one().get(WAIT) == "None no tool"


def test_the_event_loop_of_a_second_actor(gate: Path) -> None:
    procs = proc_mesh(gpus=1)
    procs.spawn("first", Busy, str(gate)).get(WAIT)
    worker = procs.spawn("worker", AsyncBusy).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        until_at(root, line_of("deep"))
        root.show("!self.event.set()")
        root.let_go()
        assert answer.get(WAIT) == "woken 42"


def test_two_actors_of_one_rank_are_stopped_at_once(gate: Path) -> None:
    procs = proc_mesh(gpus=1)
    first = procs.spawn("first", Busy, str(gate)).get(WAIT)
    worker = procs.spawn("worker", AsyncBusy).get(WAIT)
    loops, waits = first.loop.call_one(), worker.wait.call_one()
    with desk() as root:
        until_at(root, line_of("deep"))
        while root.request_stop(actor="first").state == "idle":
            pass
        root.stopped(actor="first")
        assert root.show("p self.gate", actor="first").text == f"{str(gate)!r}\n"
        root.show("!self.event.set()")
        root.let_go()
        assert waits.get(WAIT) == "woken 42"
        root.show("!go = False", actor="first")
        root.let_go(actor="first")
        assert loops.get(WAIT) > 0


def test_a_rank_that_prints_all_the_time(worker: Any, gate: Path) -> None:
    with desk() as root:
        answer = worker.prints.call_one()
        for _ in range(5):
            assert until_at(root, 0).place.function in ("prints", "_opened")
            root.let_go()
        gate.touch()
        assert answer.get(WAIT) == "printed"
        assert worker.traced.call_one().get(WAIT) == "None no tool"


def test_c_code_is_interrupted_when_it_returns(worker: Any) -> None:
    with desk() as root:
        answer, stop = worker.computes.call_one(), None
        while stop is None:
            if root.request_stop().state == "idle":
                if answer.done():  # it was over before it could be interrupted: the machine is busy
                    answer = worker.computes.call_one()
                continue
            stop = root.stopped()
            if stop.place.line != line_of("computed"):
                root.let_go()
                stop = None
        assert stop.reason == "interrupt"
        root.let_go()
        assert len(answer.get(WAIT)) == 32


def test_the_mesh_is_stopped_while_a_coroutine_is_looked_at() -> None:
    procs = proc_mesh(gpus=1)
    worker = procs.spawn("worker", AsyncBusy).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        until_at(root, line_of("deep"))
        procs.stop(WAIT).get(WAIT)
        with pytest.raises(ActorError, match="the mesh was stopped while this rank was stopped in the debugger"):
            answer.get(WAIT)


@pytest.mark.slow
def test_user_code_that_takes_the_signal(worker: Any, gate: Path) -> None:
    worker.take_signals.call_one().get(WAIT)
    with desk() as root:
        answer = worker.loop.call_one()
        with pytest.raises(MeshError, match=r"code of this rank uses signal \d+"):
            until_at(root, 0)
        gate.touch()
        answer.get(WAIT)

"""Breakpoints that are set while ranks run, and what is left when they are gone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, ProcMesh, endpoint, proc_mesh
from meshrt.debug.rank_operations import BreakSpec, BreakStates, ReadHits, SetBreaks
from meshrt.program.places import Place
from tests.debug import busy
from tests.debug.busy import AsyncBusy, Busy, line_of
from tests.debug.desk import WAIT, Desk, desk

pytestmark = pytest.mark.one_program

LATER = sys.version_info >= (3, 12)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def procs() -> ProcMesh:
    return proc_mesh(gpus=1)


@pytest.fixture
def worker(procs: ProcMesh, gate: Path) -> Any:
    return procs.spawn("worker", Busy, str(gate)).get(WAIT)


@pytest.fixture
def root(worker: Any) -> Iterator[Desk]:
    with desk() as opened:
        yield opened


def spec(number: int = 1, **more: Any) -> BreakSpec:
    return BreakSpec(number, **more)


def put(root: Desk, *specs: BreakSpec) -> BreakStates:
    return root.ask(SetBreaks(specs)).same


def states(answer: BreakStates) -> dict[int, str]:
    return {each.id: each.state for each in answer.breaks}


def hits(root: Desk) -> dict[int, int]:
    return {each.id: each.hits for each in root.ask(ReadHits()).same.breaks}


def at(name: str, number: int = 1, **more: Any) -> BreakSpec:
    return spec(number, file="debug/busy.py", line=line_of(name), **more)


def test_a_line_is_hit_each_time_until_it_is_removed(root: Desk, worker: Any) -> None:
    answer = put(root, at("work"))
    assert states(answer) == {1: "bound"}
    assert answer.breaks[0].line == 0
    assert ("times as long" in answer.price) is not LATER
    result = worker.work.call_one(3)
    for turn in range(3):
        stop = root.stopped()
        assert (stop.place.line, stop.reason, stop.breakpoint) == (line_of("work"), "breakpoint", 1)
        assert root.show("p i").text == f"{turn}\n"
        root.let_go()
    assert result.get(WAIT) == 3
    assert hits(root) == {1: 3}
    put(root)
    assert worker.work.call_one(3).get(WAIT) == 3
    assert worker.traced.call_one().get(WAIT) == "None no tool"


def test_a_loop_that_runs_already_is_reached_and_let_go(root: Desk, worker: Any, gate: Path) -> None:
    result = worker.loop.call_one()
    while root.request_stop().state == "idle":
        pass
    root.stopped()
    root.let_go()
    put(root, at("loop"))
    stop = root.stopped()
    assert stop.place.line == line_of("loop")
    before = int(root.show("p turns").text)
    assert root.step("c").place.line == line_of("loop")
    assert int(root.show("p turns").text) == before + 1
    put(root)
    root.show("import sys")
    root.let_go()
    while root.request_stop().state == "idle":
        pass
    root.stopped()
    looking = "[bool(sys.monitoring.get_tool(i)) for i in range(6)]" if LATER else "sys.gettrace()"
    assert root.show(f"p {looking}").text in ("None\n", f"{[False] * 6}\n")
    assert root.show("p __import__('sys')._getframe().f_back.f_trace").text == "None\n"
    root.let_go()
    gate.touch()
    assert result.get(WAIT) > 0
    assert worker.traced.call_one().get(WAIT) == "None no tool"


def test_conditions(root: Desk, worker: Any) -> None:
    put(root, at("work", condition="i == 2"))
    result = worker.work.call_one(5)
    root.stopped()
    assert root.show("p i, total").text == "(2, 1)\n"
    root.let_go()
    assert result.get(WAIT) == 10
    put(root, at("work", condition="nothing > 2"))
    result = worker.work.call_one(1)
    stop = root.stopped()
    assert stop.error == "condition 'nothing > 2' of breakpoint 1 raised NameError: name 'nothing' is not defined"
    assert stop.text.startswith(stop.error + "\n> ")
    root.let_go()
    assert result.get(WAIT) == 0
    assert "SyntaxError" in states(put(root, at("work", condition="i =")))[1]
    assert worker.work.call_one(2).get(WAIT) == 1


def test_once(root: Desk, worker: Any) -> None:
    put(root, at("work", once=True))
    result = worker.work.call_one(5)
    root.stopped()
    root.let_go()
    assert result.get(WAIT) == 10
    assert hits(root) == {1: 1}
    put(root, at("work", once=True))
    assert worker.work.call_one(5).get(WAIT) == 10
    put(root, at("work", number=2, once=True))
    result = worker.work.call_one(5)
    assert root.stopped().breakpoint == 2
    root.let_go()
    assert result.get(WAIT) == 10


def test_an_endpoint_by_name(root: Desk, worker: Any) -> None:
    assert states(put(root, spec(method="work", actor="worker"))) == {1: "bound"}
    result = worker.work.call_one(1)
    stop = root.stopped()
    assert (stop.place.line, stop.place.function) == (line_of("work") - 2, "work")
    root.let_go()
    assert result.get(WAIT) == 0
    text = states(put(root, spec(method="wrok", actor="worker")))[1]
    assert text.startswith("Busy has no method 'wrok'; its endpoints: asks, computes, ")
    assert states(put(root, spec(method="work", actor="another"))) == {1: "pending"}


class Early(Actor):
    """What runs before its first endpoint does."""

    def __init__(self) -> None:
        self.ready = self.prepared()

    def prepared(self) -> bool:
        return True

    @endpoint
    def is_ready(self) -> bool:
        return self.ready


def test_a_method_that_the_constructor_calls(root: Desk, procs: ProcMesh) -> None:
    put(root, spec(method="prepared", actor="early", once=True))
    early = procs.spawn("early", Early)
    assert root.stopped(actor="early").place.function == "prepared"
    root.let_go(actor="early")
    assert early.is_ready.call_one().get(WAIT)


def test_a_method_that_is_no_endpoint(root: Desk, worker: Any) -> None:
    assert states(put(root, spec(method="_opened", actor="worker", once=True))) == {1: "bound"}
    worker.loop.broadcast()
    assert root.stopped().place.function == "_opened"
    root.let_go()


def test_an_endpoint_of_an_actor_that_comes_later(root: Desk, procs: ProcMesh) -> None:
    put(root, spec(method="value", actor="later"))
    result = procs.spawn("later", AsyncBusy).get(WAIT).value.call_one()
    root.stopped(actor="later")
    root.let_go(actor="later")
    assert result.get(WAIT) == 5


def test_stepping_onto_a_breakpoint_stops_once(root: Desk, worker: Any) -> None:
    put(root, at("work"))
    result = worker.work.call_one(2)
    root.stopped()
    seen = []
    for _ in range(4):
        stop = root.step("n")
        seen.append((stop.place.line - line_of("work"), root.show("p i").text))
    assert seen == [(-1, "0\n"), (0, "1\n"), (-1, "1\n"), (1, "1\n")]
    root.let_go()
    assert result.get(WAIT) == 1


def test_breakpoints_of_the_session_and_of_the_mesh(root: Desk, worker: Any) -> None:
    put(root, at("work"))
    result = worker.work.call_one(2)
    root.stopped()
    root.show(f"b {line_of('worked')}")
    assert root.step("c").place.line == line_of("work")
    assert root.step("c").place.line == line_of("worked")
    root.show("clear all")
    root.let_go()
    assert result.get(WAIT) == 1


def test_jump_at_a_breakpoint(root: Desk, worker: Any) -> None:
    put(root, at("work", once=True))
    result = worker.work.call_one(100)
    root.stopped()
    root.show("!total = 5")
    root.show(f"j {line_of('worked')}")
    root.let_go()
    assert result.get(WAIT) == 5


def test_a_line_without_code(root: Desk, worker: Any) -> None:
    answer = put(root, spec(file=busy.__file__, line=line_of("count") - 1))
    assert states(answer) == {1: "bound"}
    assert answer.breaks[0].line == line_of("count") == root.ask(ReadHits()).same.breaks[0].line
    beyond = states(put(root, spec(file=busy.__file__, line=line_of("count") - 2)))[1]
    assert beyond.endswith(f"count begins at line {line_of('count') - 1}") and "is in no function" in beyond
    assert "no code at line 99999" in states(put(root, spec(file="busy.py", line=99999)))[1]
    assert "outside all functions" in states(put(root, spec(file="busy.py", line=6)))[1]
    assert states(put(root, spec(file="other.py", line=6))) == {1: "pending"}


def test_nothing_is_looked_for_when_everything_was_refused(root: Desk, worker: Any) -> None:
    refused = (spec(1, file="busy.py", line=99999), spec(2, method="wrok", actor="worker"))
    answer = put(root, *refused)
    assert set(states(answer).values()).isdisjoint({"bound", "pending"})
    assert answer.price == ""
    assert worker.traced.call_one().get(WAIT) == "None no tool"
    put(root, *refused, at("work", 3))
    result = worker.work.call_one(1)
    assert root.stopped().breakpoint == 3
    put(root, *refused)
    root.let_go()
    assert result.get(WAIT) == 0
    assert worker.traced.call_one().get(WAIT) == "None no tool"


def test_a_thread_of_the_users(root: Desk, worker: Any) -> None:
    put(root, at("count"))
    result = worker.thread.call_one()
    stop = root.stopped(thread="Helper")
    assert stop.place.line == line_of("count")
    root.let_go(thread="Helper")
    assert result.get(WAIT) == 1


def test_an_async_endpoint(root: Desk, worker: Any, procs: ProcMesh) -> None:
    sleeper = procs.spawn("sleeper", AsyncBusy).get(WAIT)
    answer = sleeper.wait.call_one()
    while root.request_stop(actor="sleeper").state == "idle":
        pass
    root.stopped(actor="sleeper")
    put(root, at("woken"))
    root.show("!self.event.set()", actor="sleeper")
    root.type("c", actor="sleeper")
    stop = root.stopped(actor="sleeper")
    assert stop.place.line == line_of("woken")
    put(root)
    root.let_go(actor="sleeper")
    assert answer.get(WAIT) == "woken 42"
    assert worker.traced.call_one().get(WAIT) == "None no tool"


def test_a_module_that_is_loaded_later(root: Desk, worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "loaded_later.py"
    path.write_text("import sys\n\n\ndef late(n):\n    m = n + 1\n    return m\n")
    assert states(put(root, spec(file="loaded_later.py", line=5))) == {1: "pending"}
    result = worker.imports.call_one(str(tmp_path), "loaded_later")
    stop = root.stopped()
    assert stop.place == Place(str(path), 5, "late")
    root.let_go()
    assert result.get(WAIT) == 8


@pytest.mark.row("D6")
def test_code_that_came_by_value(gate: Path) -> None:
    class Local(Actor):
        @endpoint
        def add(self, value: int) -> int:
            result = value + 1  # here
            return result

    Local.__module__ = "__main__"
    code = vars(Local)["add"].__code__
    worker = proc_mesh(gpus=1).spawn("worker", Local).get(WAIT)
    with desk() as root:
        answer = put(root, spec(file=Path(__file__).name, line=code.co_firstlineno + 2))
        assert states(answer) == {1: "bound"}
        result = worker.add.call_one(4)
        stop = root.stopped()
        assert (stop.place.line, stop.place.function) == (code.co_firstlineno + 2, "add")
        root.let_go()
        assert result.get(WAIT) == 5


def test_a_second_actor_only(gate: Path) -> None:
    procs = proc_mesh(gpus=1)
    first = procs.spawn("first", Busy, str(gate)).get(WAIT)
    second = procs.spawn("second", Busy, str(gate)).get(WAIT)
    with desk() as root:
        put(root, at("work", actor="second"))
        assert first.work.call_one(3).get(WAIT) == 3
        result = second.work.call_one(1)
        root.stopped(actor="second")
        put(root)
        root.let_go(actor="second")
        assert result.get(WAIT) == 0


def test_nothing_stops_while_the_mesh_is_being_stopped(root: Desk, worker: Any, procs: ProcMesh) -> None:
    put(root, at("work"))
    result = worker.work.call_one(3)
    root.stopped()
    stopping = procs.stop(10)
    with pytest.raises(Exception, match=r"BdbQuit|stopped"):
        result.get(WAIT)
    stopping.get(WAIT)

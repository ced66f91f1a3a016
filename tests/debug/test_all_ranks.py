"""``meshrt.breakpoint(all=True)``: one rank comes to it, and all ranks of the actor stop, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt import MeshError, proc_mesh
from tests.debug.all_ranks import Together, line_of
from tests.debug.harness import Person, person
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 20


@pytest.fixture(autouse=True)
def _names_who_is_late(monkeypatch: pytest.MonkeyPatch, _patient: None) -> None:
    """Tests wait for what is said of ranks that do not stop."""
    monkeypatch.setattr("meshrt.debug.broker.stopping._EXPLAIN_SECONDS", 0.5)


def lines(me: Person) -> dict[int, int]:
    """Where ranks stand: the line, by rank."""
    return {row["rank"]: row["line"] for row in me.rows()}


def spawned(gpus: int = 4) -> Any:
    return proc_mesh(gpus=gpus).spawn("together", Together).get(WAIT)


def test_ranks_that_all_come_there_stop_once_each() -> None:
    together = spawned()
    result = together.same.call(3)
    with person() as me:
        for _ in range(3):
            me.wait("together")
            assert lines(me) == dict.fromkeys(range(4), line_of("same"))
            me("continue")
        # Each rank has stopped three times, and nothing that was asked of it is left.
        assert list(result.get(WAIT).values()) == [3] * 4
        assert me.rows() == []


def test_the_others_stop_where_they_are_each_time(tmp_path: Path) -> None:
    together, gate = spawned(), tmp_path / "gate"
    result = together.one.call("1", str(gate))
    with person() as me:
        for _ in range(3):
            me.wait("together")
            assert lines(me)[1] == line_of("one")
            me("continue")
        gate.touch()
        assert list(result.get(WAIT).values()) == [3] * 4
        assert me.rows() == []


def test_two_ranks_ask_at_once(tmp_path: Path) -> None:
    together, gate = spawned(3), tmp_path / "gate"
    result = together.one.call("0,2", str(gate))
    with person() as me:
        for _ in range(3):
            me.wait("together")
            found = lines(me)
            assert line_of("one") in (found[0], found[2])
            me("continue")
        gate.touch()
        wait_until(lambda: me("continue") is not None and result.done(), WAIT)
        result.get(WAIT)


def test_a_rank_in_c_is_named_and_does_not_stop_in_a_program_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 2 has ended, and rank 3 waits for messages: nothing is to stop there."""
    together, gate = spawned(), tmp_path / "gate"
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)
    os.kill(together.slice(gpus=2).pid.call_one().get(WAIT), signal.SIGKILL)
    result = together.slice(gpus=slice(0, 2)).differ.call(str(gate))
    with person() as me:
        me.wait("together", "ranks(0)")
        me.heard("rank 1 of together is not stopped yet: in C code: ")
        assert lines(me) == {0: line_of("first")}
        assert "stopped in the debugger" in me("where together ranks(0)")
        me("continue")
        assert list(result.get(WAIT).values()) == [0, 1]
        assert me.rows() == []


def test_a_rank_that_was_interrupted_by_hand_still_stops(tmp_path: Path) -> None:
    together, gate = spawned(2), tmp_path / "gate"
    result = together.differ.call(str(gate))
    with person() as me:
        me.wait("together", "ranks(0)")
        me.heard("rank 1 of together is not stopped yet")
        me("interrupt together ranks(1)")
        me("continue together ranks(0)")
        me.wait("together", "ranks(1)")
        assert lines(me) == {1: line_of("in_c")}
        me("continue")
        assert list(result.get(WAIT).values()) == [0, 1]


def test_a_step_of_the_rank_that_asked_stops_the_others_as_they_come_back(tmp_path: Path) -> None:
    together, gate = spawned(2), tmp_path / "gate"
    result = together.differ.call(str(gate))
    with person() as me:
        me.wait("together", "ranks(0)")
        me.heard("rank 1 of together is not stopped yet")
        me("attach together 0")
        me("n")
        me("n")
        me("detach")
        me.wait("together")
        assert lines(me) == {0: line_of("back"), 1: line_of("in_c")}
        me("continue")
        result.get(WAIT)


def test_a_bad_selection_stops_nothing() -> None:
    together = spawned(2)
    with pytest.raises(MeshError, match="pp"):
        together.slice(gpus=0).bad.call_one().get(WAIT)
    with person() as me:
        assert me.rows() == []


def test_outside_of_a_rank_it_is_the_breakpoint_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook of the user's is given what it knows."""
    called: list[dict[str, object]] = []
    monkeypatch.setattr("sys.breakpointhook", lambda **more: called.append(more))
    meshrt.breakpoint(all=True, header="here")
    assert called == [{"header": "here"}]

"""Stops in calls that run beside each other in one actor."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt import ActorError, ActorMesh, proc_mesh
from tests.debug.actors import Debugee
from tests.debug.harness import attached, person
from tests.debug.turns import Turns, line_of
from tests.support.waiting import wait_until

WAIT = 20


def spawn(**sizes: Any) -> ActorMesh[Turns]:
    return proc_mesh(**sizes).spawn("turns", Turns).get(WAIT)


def test_two_calls_are_stepped_in_turns() -> None:
    turns = spawn(gpus=2)
    first, second = turns.take.call(1), turns.take.call(10)
    with attached("turns", 1) as me:
        assert f"({line_of('wait')})take()" in me("n")
        # The first call waits: the second one has its turn, and says so.
        shown = me("n")
        assert f"({line_of('take')})take()" in shown and shown.startswith("--take-2--\n")
        assert me("p number") == "10\n"
        # Neither to let it go nor its end loses the step of the first one.
        opened = [turns.let_in.call(number) for number in (10, 1)]
        me("c")
        me.wait("turns", "ranks(1)")
        assert f"({line_of('woken')})take()" in me("bt")
        assert me("p number") == "1\n"
        me("detach")
        while not all(future.done() for future in (first, second)):
            me("continue")
    assert first.get(WAIT).values() == [2, 2] and second.get(WAIT).values() == [11, 11]
    assert [future.get(WAIT).values() for future in opened] == [[None, None]] * 2


def test_post_mortem_of_one_call() -> None:
    turns = spawn(gpus=1)
    waiting = turns.plain.call_one(3)
    with person() as me:
        me("postmortem on")
        failed = turns.fail.call_one()
        me.wait("turns")
        (row,) = me.rows()
        assert (row["line"], row["state"]) == (line_of("raised"), "post-mortem")
        me("continue")
    with pytest.raises(ActorError, match="of this call only"):
        failed.get(WAIT)
    turns.let_in.call_one(3).get(WAIT)
    assert waiting.get(WAIT) == -3


def test_where_shows_every_call_and_interrupt_the_oldest() -> None:
    turns = spawn(gpus=2)
    waiting = [turns.plain.call(number) for number in (1, 2)]
    with person() as me:
        wait_until(lambda: me("where turns").count(f"turns.py:{line_of('plain')}") == 2, WAIT)
        me.until("list blocked", "(plain)")
        assert f"({line_of('plain')})plain()" in me("interrupt turns ranks(:)")
        assert me("cast turns ranks(:) p number") == "[0-1] 1\n"
        assert "stopped in the debugger" in me("where turns")
        me("continue")
        me.until("list blocked", "(plain)")
    for number in (1, 2):
        turns.let_in.call(number).get(WAIT)
    assert [future.get(WAIT).values() for future in waiting] == [[-1, -1], [-2, -2]]


def test_a_breakpoint_in_a_call_that_runs_survives_the_end_of_another() -> None:
    turns = spawn(gpus=1)
    turning = turns.turn.call_one()
    with person() as me:
        me(f"break turns.py:{line_of('round')}, not self.going")
        plain = turns.plain.call_one(4)
        turns.let_in.call_one(4).get(WAIT)
        assert plain.get(WAIT) == -4
        me("clear all")
        me(f"tbreak turns.py:{line_of('round')}")
        me.wait("turns")
        assert f"({line_of('round')})turn()" in me("cast turns ranks(0) bt")
        me("continue")
    turns.finish.call_one().get(WAIT)
    assert turning.get(WAIT) == 1


@pytest.mark.slow
def test_a_breakpoint_is_reached_whatever_the_event_loop_does_while_it_is_set() -> None:
    turns = spawn(gpus=1)
    turning = turns.turn.call_one()
    with person() as me:
        for _ in range(100):  # the loop waits most of the time, and is followed no more after each round
            me(f"tbreak turns.py:{line_of('round')}")
            me.wait("turns")
            me("continue")
            me("clear all")
    turns.finish.call_one().get(WAIT)
    assert turning.get(WAIT) == 1


def test_a_breakpoint_is_reached_in_a_task_that_has_outlived_its_call() -> None:
    turns = spawn(gpus=1)
    turns.start_rounds.call_one().get(WAIT)
    with person() as me:
        me(f"tbreak turns.py:{line_of('rounds')}, self.gates")
        turns.let_in.call_one(4).get(WAIT)
        me.wait("turns")
        assert f"({line_of('rounds')})rounds()" in me("cast turns ranks(0) bt")
        me("continue")
    turns.finish.call_one().get(WAIT)


def test_the_other_actors_of_the_rank_go_on() -> None:
    mesh = proc_mesh(gpus=1)
    turns, other = mesh.spawn("turns", Turns).get(WAIT), mesh.spawn("other", Debugee).get(WAIT)
    result = turns.take.call_one(1)
    with person() as me:
        me.wait("turns")
        assert other.pid.call_one().get(WAIT)
        gate = turns.let_in.call_one(1)
        me("continue")
    assert gate.get(WAIT) is None and result.get(WAIT) == 2


def test_a_breakpoint_of_one_call_leaves_the_step_of_another() -> None:
    turns = spawn(gpus=1)
    first = turns.take.call_one(1)
    with person() as me:
        me.wait("turns")
        second = turns.take.call_one(10)
        me("attach turns 0")
        me("n")
        assert me("n").startswith("--take-2--")  # the first one waits
        me(f"b {line_of('result')}")
        opened = turns.let_in.call_one(1)
        me("c")
        me.wait("turns")
        # The first one has made its step: neither its breakpoint nor its name is the second one's.
        assert f"({line_of('woken')})take()" in me("cast turns ranks(0) bt")
        assert me("cast turns ranks(0) p number") == "[0] 1\n"
        me("continue")
        assert first.get(WAIT) == 2
        opened_too = turns.let_in.call_one(10)
        me.wait("turns")
        assert f"({line_of('result')})take()" in me("cast turns ranks(0) bt")
        assert me("cast turns ranks(0) p number") == "[0] 10\n"
        me("continue")
    assert second.get(WAIT) == 11 and opened.get(WAIT) is opened_too.get(WAIT) is None


def test_a_breakpoint_is_hit_while_another_call_steps() -> None:
    turns = spawn(gpus=1)
    first = turns.help.call_one(1)
    with attached("turns", 0) as me:
        me(f"b turns.py:{line_of('helper')}")
        second = turns.take.call_one(10)
        me("c")
        me.wait("turns")
        me("attach turns 0")
        me("n")
        opened = turns.let_in.call_one(1)
        assert f"({line_of('helper')})helper()" in me(
            "n"
        )  # the second one waits; the first one comes to its breakpoint
        assert me("p number") == "1\n"
        me("c")
        last = turns.let_in.call_one(10)
        me.wait("turns")
        assert f"({line_of('woken')})take()" in me("cast turns ranks(0) bt")
        me("continue")
    assert (first.get(WAIT), second.get(WAIT)) == (2, 11) and opened.get(WAIT) is last.get(WAIT) is None


def test_only_a_call_that_was_stopped_stops_where_it_raises() -> None:
    turns = spawn(gpus=1)
    stopped = turns.take.call_one(1)
    with person() as me:
        me.wait("turns")
        me("continue")
        with pytest.raises(ActorError, match="of this call only"):
            turns.fail.call_one().get(WAIT)
        assert me("list") == "nothing is stopped\n"
    turns.let_in.call_one(1).get(WAIT)
    assert stopped.get(WAIT) == 2


def test_the_users_trace_function_outlives_the_sessions_of_other_calls() -> None:
    turns = spawn(gpus=1)
    traced = turns.traced.call_one(5)
    first, second = turns.take.call_one(1), turns.take.call_one(10)
    with attached("turns", 0) as me:
        for _ in range(3):
            me("n")  # both have stepped, the second one waits
        opened = [turns.let_in.call_one(1)]
        me("n")
        assert me("p number") == "1\n"
        me("c")
        assert first.get(WAIT) == 2
        opened.append(turns.let_in.call_one(10))
        me.wait("turns")
        me("continue")
        assert second.get(WAIT) == 11
        opened.append(turns.let_in.call_one(5))
        me.wait("turns")
        me("continue")
    assert traced.get(WAIT) is True
    assert [future.get(WAIT) for future in opened] == [None] * 3


def test_a_task_that_outlives_its_call_keeps_its_step() -> None:
    turns = spawn(gpus=1)
    turns.start_task.call_one().get(WAIT)
    with attached("turns", 0) as me:
        other = turns.take.call_one(1)
        me("n")
        me("n")  # the task waits, the other call stops
        assert me("p number") == "1\n"
        opened = turns.let_in.call_one(0)
        me("c")
        me.wait("turns")
        assert f"({line_of('outlived')})outlive()" in me("cast turns ranks(0) bt")
        me("continue")
        turns.let_in.call_one(1).get(WAIT)
    assert other.get(WAIT) == 2 and opened.get(WAIT) is None


def test_the_parts_of_one_call_are_not_taken_for_each_other() -> None:
    turns = spawn(gpus=1)
    both = turns.both.call_one()
    with attached("turns", 0) as me:
        me("n")
        me("n")  # the first part waits, the second one stops
        assert me("p number") == "2\n"
        assert f"({line_of('part')})part()" in me("n")
        opened = [turns.let_in.call_one(number) for number in (2, 1)]
        shown = me("n")
        assert "Internal StopIteration" not in shown and f"({line_of('parted')})part()" in shown
        assert me("p number") == "2\n"
        me("c")
    assert both.get(WAIT) == [1, 2] and [future.get(WAIT) for future in opened] == [None] * 2

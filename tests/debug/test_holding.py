"""Ranks that are held where they raised, before they were built, or by a person: whom it holds, and what it costs."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from meshrt import ActorError, ActorMesh, Future, proc_mesh
from meshrt.debug.dumpfile import read_dump
from meshrt.mesh.program import start_root
from tests.debug import callee
from tests.debug.harness import Person, person
from tests.debug.waits import AsyncWaits, Waits, failing_setup, line_of, stopping_setup
from tests.support.waiting import wait_until

WAIT = 20
#: Seconds that a caller waits, and that a rank is held at least: longer.
CALL, HELD = 0.4, 0.6


def fails(mesh: ActorMesh[Waits], ranks: tuple[int, ...] = (0,)) -> None:
    """The call fails at once: nobody holds its ranks."""
    result = mesh.fail.call(ranks)
    wait_until(result.done, WAIT)  # the time-out of `get` stands still while one is held
    with pytest.raises(ActorError, match="is bad"):
        result.get(WAIT)


def holds(me: Person, name: str, mesh: ActorMesh[Waits], ranks: tuple[int, ...] = (0,)) -> Future[Any]:
    """The ranks of the call are held where they raised."""
    result = mesh.fail.call(ranks)
    me.wait(name, f"ranks({','.join(map(str, ranks))})")
    assert not result.done()
    return result


def release(me: Person, result: Future[Any]) -> None:
    """Let go what is held after an exception; nothing is left."""
    me("continue")
    with pytest.raises(ActorError, match="is bad"):
        result.get(WAIT)
    assert me("list post-mortem") == "no rank is post-mortem\n"


def test_which_failures_are_held() -> None:
    left, right = proc_mesh(gpus=2, post_mortem=True, name="left"), proc_mesh(gpus=1, name="right")
    a = left.spawn("a", Waits).get(WAIT)
    b, c = right.spawn("b", Waits).get(WAIT), right.spawn("c", Waits).get(WAIT)
    with person() as me:
        held = holds(me, "a", a, (0, 1))
        fails(b)
        me("list post-mortem")
        row = rf"\| post-mortem \| \d+ s +\| waits.py:{line_of('fail')} \(fail\) \|"
        assert len(re.findall(row, me.terminal.shown)) == 2
        assert me.terminal.shown.count("| a ") == 2
        assert "a 0-1: post-mortem at waits.py" in me("status")
        release(me, held)

        assert me("postmortem off a").startswith("a: off\n")
        fails(a)
        assert me("postmortem on b").startswith("a: off\nb: on\n")
        held = holds(me, "b", b)
        fails(a)
        fails(c)
        release(me, held)

        assert me("postmortem on").startswith("all actors: on\n")
        assert me("postmortem off c").startswith("all actors: on\nc: off\n")
        fails(c)
        release(me, holds(me, "b", b))
        release(me, holds(me, "a", a, (1,)))

        assert me("postmortem default").startswith("all actors: default\n")
        fails(b)
        result = b.stop_and_fail.call()
        me.wait("b")
        me("postmortem off")
        assert me("continue") == "rank 0 of b: resumed\n"
        wait_until(result.done, WAIT)
        with pytest.raises(ActorError, match="after the stop"):
            result.get(WAIT)
        assert me("list") == "nothing is stopped\n"

        assert me("postmortem dump").startswith("all actors: dump\n")
        fails(b)
        fails(a, (1,))
        directory = Path(start_root().run.run_directory) / "post-mortem"
        wait_until(lambda: len(list(directory.glob("*.json"))) == 2, WAIT)
        found = {(dump.actor, dump.rank): dump.frames[-1] for dump in map(read_dump, directory.glob("*"))}
        assert found.keys() == {("b", 0), ("a", 1)}
        assert found["a", 1].locals["secret"] == "<masked>"
        assert found["a", 1].line == line_of("fail")
        assert me("list post-mortem") == "no rank is post-mortem\n"


def test_a_stop_in_the_set_up() -> None:
    spawned = proc_mesh(gpus=2, setup=stopping_setup).spawn("a", Waits)
    with person() as me:
        me.wait("a")
        assert {row["line"] for row in me.rows()} == {line_of("setup")}
        assert me("cast a ranks(:) p place") == "[0-1] 'set-up'\n"
        assert me("cast a ranks(0) bt").count("\n-> ") == 1
        me("continue")
        assert spawned.get(WAIT).compute.call(3).get(WAIT).values() == [6, 6]


def test_a_failure_in_the_set_up_and_beside_it() -> None:
    left = proc_mesh(gpus=1, setup=failing_setup, post_mortem=True).spawn("a", Waits)
    with person() as me:
        me.wait("a")
        assert "stopped on an exception; `c` passes the exception to the caller: a 0" in me("list")
        me("attach a 0")
        assert "OSError: no device gpu9" in me.terminal.shown
        assert f"({line_of('no_device')})failing_setup()" in me.terminal.shown
        assert me("p device") == "'gpu9'\n"
        me("c")
        with pytest.raises(ActorError, match=r"no device gpu9(?s:.)*setup function of the mesh"):
            left.get(WAIT)


def test_a_stop_in_a_callee_of_another_module() -> None:
    result = proc_mesh(gpus=1).spawn("w", Waits).get(WAIT).calls.call_one(20)
    with person() as me:
        me.wait("w")
        assert me("attach w 0").endswith("-> breakpoint()  # @twice\n")
        assert f"callee.py({callee.line_of('twice')})twice()" in me.terminal.shown
        assert me("p inner, number") == "(42, 21)\n"
        assert f"waits.py({line_of('calls')})calls()\n-> return twice(mine)" in me("u")
        assert me("p mine, self.rank") == "(21, 0)\n"
        assert "Oldest frame" in me("u")
        assert "twice()" in me("d")
        assert me("bt").count("\n-> ") == 2
        me("c")
    assert result.get(WAIT) == 42


def test_a_rank_whose_coroutine_is_stopped_serves_its_other_actors() -> None:
    procs = proc_mesh(gpus=2)
    stopped, other = procs.spawn("a", AsyncWaits).get(WAIT), procs.spawn("b", AsyncWaits).get(WAIT)
    plain = procs.spawn("c", Waits).get(WAIT)
    result = stopped.work.call(1)
    with person() as me:
        me.wait("a")
        assert other.ping.call().get(WAIT).values() == ["pong", "pong"]
        assert plain.compute.call(4).get(WAIT).values() == [8, 8]
        assert me("cast a ranks(:) p await self.value()") == "[0-1] 5\n"
        assert me("cast a ranks(0) p got + number + await self.value()") == "[0] 11\n"
        assert me("p b self.rank").startswith("[0-1] *** AttributeError")
        me("continue")
    assert result.get(WAIT).values() == [6, 6]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["interrupt", "break", "post-mortem"])
def test_the_time_of_a_call_stands_still(how: str) -> None:
    """The caller's `get` would have ended long before the rank is let go."""
    mesh = proc_mesh(gpus=2).spawn("w", Waits).get(WAIT)
    got: list[Any] = []

    def wait(result: Future[Any]) -> None:
        try:
            got.append(result.get(CALL).values())
        except Exception as error:
            got.append(error)

    with person() as me:
        if how == "interrupt":
            result = mesh.wait.call()
            wait_until(lambda: f"waits.py:{line_of('wait')}" in me("where"), 15)
            me("interrupt w")
        elif how == "break":
            me(f"break waits.py:{line_of('compute')}")
            result = mesh.compute.call(3)
        else:
            me("postmortem on")
            result = mesh.fail.call((0, 1))
        me.wait("w")
        waiting = threading.Thread(target=wait, args=(result,))
        waiting.start()
        assert "no actor 'nobody'" in me(f"wait nobody {HELD}")  # takes so long
        assert waiting.is_alive()
        me("p w self.go.set()")
        me("continue")
        waiting.join(WAIT)
    (outcome,) = got
    if how == "post-mortem":
        assert isinstance(outcome, ActorError)
        assert "is bad" in str(outcome)
    else:
        assert outcome == ([0, 1] if how == "interrupt" else [6, 6])

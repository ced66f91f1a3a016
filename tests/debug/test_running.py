"""Ranks that nobody has stopped: their values, stacks, output and states; and stopping them where they are."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from meshrt import ActorError, ActorMesh, Future, proc_mesh
from tests.debug.harness import Person, person
from tests.debug.working import Worker, line_of
from tests.support.untyped import asked
from tests.support.waiting import wait_until

WAIT = 20
LATER = sys.version_info >= (3, 12)


def spawn(**sizes: Any) -> ActorMesh[Worker]:
    return proc_mesh(**sizes).spawn("worker", Worker).get(WAIT)


@contextmanager
def receiving(odd: tuple[int, ...] = (), **sizes: Any) -> Iterator[tuple[Person, Future[Any]]]:
    """Ranks that wait in recv (the odd ones for a queue), until the person leaves."""
    mesh = spawn(**sizes)
    result = mesh.receive.call(odd)
    with person() as me:
        me.until("p worker self.step", f"[0-{mesh.size() - 1}] 1")
        me.until("where", f"working.py:{line_of('recv')}")
        yield me, result
        me("p worker self.pair[1].send(b'x'), self.queue.put(1)")
        assert result.get(WAIT).values() == [1] * len(result.get(WAIT))


def test_values_of_ranks_that_run() -> None:
    with receiving(hosts=2, gpus=2) as (me, _):
        assert me("p worker self.rank // 2") == "[0-1] 0\n[2-3] 1\n"
        assert me("p worker self.loss, SCALE") == "[0-2] (0.25, 100)\n[3] (nan, 100)\n"
        assert me("p --diff 0 worker self.config").splitlines() == [
            "[0] {'lr': 0.1, 'layers': [1, 2, 3]}",
            "[1,3] the same",
            "[2] items that differ: 1",
            "  'layers': [1, 2, 4]  ([1, 2, 3])",
        ]
        assert me("p worker ranks(hosts=1) self.nothing").startswith("[2-3] *** AttributeError")
        assert me("whatis worker ranks(0) self.config") == "[0] <class 'dict'>\n"
        assert "def _train(self)" in me("source worker ranks(0) self._train")
        assert me("p worker 1/0").startswith("[0-3] *** ZeroDivisionError")
        assert not me.ok
        assert me("list") == "nothing is stopped\n"


def test_some_stand_and_some_run() -> None:
    with receiving(gpus=4) as (me, _):
        assert me("interrupt worker ranks(1,2)").startswith("[1-2]\n> ")
        assert me("p worker self.rank > 1") == "[0-1] False\n[2-3] True\n"
        # Where it stands there are the names of its stack frame; where it runs, those of the actor.
        unknown, *values = me("p worker odd, self.rank").splitlines()
        assert unknown.startswith("[0,3] *** NameError: name 'odd' is not defined (the actor is running: only ")
        assert values == ["[1] ((), 1)", "[2] ((), 2)"]
        assert not me.ok
        assert me("whatis worker ranks(stopped) odd") == "[1-2] <class 'tuple'>\n"
        assert me("pp worker ranks(stopped) [odd, self.config, 'x' * 80]").splitlines() == [
            "[1]", "[(),", " {'layers': [1, 2, 3], 'lr': 0.1},", f" '{'x' * 80}']",
            "[2]", "[(),", " {'layers': [1, 2, 4], 'lr': 0.1},", f" '{'x' * 80}']",
        ]  # fmt: skip
        assert "def _train(self) -> int:" in me("source worker ranks(stopped) self._train")
        assert "*** NameError" in me("source worker ranks(1) nothing")
        assert "rank 1 of worker: stopped already" in me("interrupt worker ranks(1)")
        assert me("continue") == "2 ranks of worker (1-2): resumed\n"


def test_where_merges_stacks_and_names_the_odd_rank() -> None:
    with receiving((5,), hosts=2, gpus=4) as (me, _):
        text = me.until("where", f"working.py:{line_of('recv')}", f"working.py:{line_of('queue')}", "7/8")
        assert text.index("recv") < text.index("queue")
        assert "1/8" in text
        assert text.splitlines()[-1] == "  likely culprits: 5 (hosts=1, gpus=1) (at another place than the other 7)"
        only = me("where worker ranks(hosts=1)")
        assert "3/4" in only
        assert "meshrt" not in only.replace("meshrt_dbg", "")
        assert "execute.py" in me("where -v worker")


def test_interrupt_a_loop_and_let_it_end() -> None:
    mesh = spawn(gpus=2)
    result = mesh.spin.call()
    with person() as me:
        me.until("p worker self.step > 0", "[0-1] True")
        assert "_train()" in me("interrupt worker")
        assert [row["function"] for row in me.rows()] == ["_train", "_train"]
        assert "working.py" in me("cast worker ranks(:) n")
        me("cast worker ranks(:) !self.stop = True")
        assert "2 ranks of worker (0-1): " in me("continue")
    assert all(steps > 0 for steps in result.get(WAIT).values())


def test_interrupt_a_blocked_call_and_resume_it() -> None:
    with receiving(gpus=2) as (me, _):
        assert f"working.py({line_of('recv')})receive()" in me("interrupt worker ranks(0)")
        assert me("cast worker ranks(0) p odd") == "[0] ()\n"
        me("attach worker 0")
        assert "-> return len(self.pair[0].recv(1))" in me.terminal.shown
        assert "worker 0 is running" in me("c")


@pytest.mark.skipif(LATER, reason="Python 3.12 reaches the threads of further actors")
def test_interrupt_a_further_actor_of_a_rank() -> None:
    procs = proc_mesh(gpus=1)
    procs.spawn("first", Worker).get(WAIT)
    second = procs.spawn("second", Worker).get(WAIT)
    result = second.spin.call_one()
    with person() as me:
        me.until("where second", "_train")
        shown = me("interrupt second")
        assert shown.startswith("rank 0 of second: refused (")
        assert "Python 3.11 interrupts the first actor of a rank only; to stop it: break second.ENDPOINT (" in shown
        assert not me.ok
        me("p second setattr(self, 'stop', True)")
        assert result.get(WAIT) > 0
        assert me("break second.spin").startswith("breakpoint 1")  # what is advised works there
        result = second.spin.call_one()
        assert me("wait second") == "stopped: rank 0\n"
        me("clear all")
        me("continue")
    assert result.get(WAIT) >= 0


def test_nothing_runs_there() -> None:
    mesh = spawn(gpus=2)
    with person() as me:
        assert me("interrupt worker") == (
            "2 ranks of worker (0-1): no endpoint is running\n"
            "no rank was stopped; break FILE:LINE stops a rank when it reaches that line\n"
        )
        assert not me.ok
        assert me("continue") == "nothing is stopped\n"
    assert mesh.compute.call(1).get(WAIT).values() == [2, 3]


def test_states_of_all_ranks() -> None:
    mesh = spawn(gpus=4)
    result = mesh.receive.call()
    pids = mesh.slice(gpus=0)
    with person() as me:
        me.until("where", "recv")
        rows = me.client.ask(asked("inspect.list", state="all", actor="", ranks=""))["rows"]
        os.kill(rows[2]["pid"], signal.SIGKILL)
        me.until("list dead", "SIGKILL")
        (row,) = [row for row in me("list dead").splitlines() if "| worker " in row]
        _, name, rank, coords, _, state, since, place, _ = (cell.strip() for cell in row.split("|"))
        assert (name, rank, coords, place) == ("worker", "2", "{'gpus': 2}", "")
        assert state == "dead (was killed by SIGKILL)"
        assert re.fullmatch(r"\d+ s", since)
        assert me("list running").count("| worker ") == 3
        assert me("list worker").count("| worker ") == 4
        assert me("list worker ranks(0:2)").count("| worker ") == 2
        me.until("list blocked", f"working.py:{line_of('recv')} (receive)")
        status = me.until("status", "worker 0-1,3: blocked at working.py")
        assert "ended: 2 (was killed by SIGKILL" in status
        assert "rank 2 of worker: ended (was killed by SIGKILL" in me("p worker self.rank")
        assert not me.ok
        assert "rank 2 of worker: ended (" in me("interrupt worker ranks(2)")
        assert me("cast worker ranks(blocked) p 1").startswith("3 ranks of worker (0-1,3): not stopped")
        me("p worker ranks(!dead) self.pair[1].send(b'x')")
    with pytest.raises(Exception, match="SIGKILL"):
        result.get(WAIT)
    assert pids.compute.call_one(2).get(WAIT) == 4


def test_output_of_ranks() -> None:
    mesh = spawn(gpus=3)
    mesh.say.call(["one", "two"]).get(WAIT)
    with person() as me:
        text = me.until("logs worker", "mine is 1", "[0,2]\none\ntwo\nmine is common")
        assert text == "[0,2]\none\ntwo\nmine is common\n[1]\none\ntwo\nmine is 1\n"
        assert me("logs -n 1 worker") == "[0,2] mine is common\n[1] mine is 1\n"
        assert me("logs --diff 0 -n 1 worker ranks(:2)") == "[0] mine is common\n[1] mine is 1\n"
        assert me("logs worker ranks(2)").endswith("mine is common\n")


def test_breakpoint_on_ranks_that_run() -> None:
    mesh = spawn(gpus=3)
    with person() as me:
        shown = me(f"break working.py:{line_of('compute')}, value > 5 ranks(0:2)")
        first, *price = shown.splitlines()
        assert first == f"breakpoint 1  working.py:{line_of('compute')}, value > 5 on ranks(0:2)"
        assert bool(price) is not LATER
        assert LATER or price[0].startswith("Python 3.11 traces every call while breakpoints are set: calls take 5 to")
        assert mesh.compute.call(1).get(WAIT).values() == [2, 3, 4]
        result = mesh.compute.call(7)
        me.wait("worker", "ranks(0:2)")
        assert {row["line"] for row in me.rows()} == {line_of("compute")}
        assert me("cast worker ranks(0:2) p value") == "[0-1] 7\n"
        assert "hit [0-1] once" in me("breaks")
        me("continue")
        assert result.get(WAIT).values() == [14, 15, 16]
        assert "deleted 1  working.py" in me("clear 1")
        assert me("breaks") == "no breakpoints are set\n"
        assert mesh.compute.call(9).get(WAIT).values() == [18, 19, 20]
        assert "no breakpoint 1; there are: none" in me("clear 1")
        assert "is not a valid place" in me("break nowhere")


def test_breakpoint_on_an_endpoint_once_and_for_meshes_that_come_later() -> None:
    proc_mesh(gpus=1).spawn("worker", Worker)  # it is known before its rank has begun it
    with person() as me:
        assert "breakpoint 1  worker.compute" in me("tbreak worker.compute")
        later = proc_mesh(gpus=2).spawn("worker", Worker).get(WAIT)
        result = later.compute.call(1)
        wait_until(lambda: len(me.rows()) == 2, 15, "no stop")
        me("continue")
        assert result.get(WAIT).values() == [2, 3]
        assert later.compute.call(1).get(WAIT).values() == [2, 3]


def test_breakpoint_reaches_a_loop_that_runs() -> None:
    mesh = spawn(gpus=2)
    result = mesh.spin.call()
    with person() as me:
        me.until("where", "_train")
        me(f"break working.py:{line_of('spin')}")
        me.wait("worker")
        me("clear all")
        me("cast worker ranks(:) !self.stop = True")
        me("continue")
    result.get(WAIT)


def test_post_mortem_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.debug.broker.notices.QUIET_SECONDS", 1.0)  # a loaded machine splits a wave otherwise
    mesh = spawn(gpus=4)
    with person() as me:
        assert me("postmortem on") == "all actors: on\n"
        result = mesh.fail.call((1, 2))
        me.wait("worker", "ranks(1,2)")
        me.heard("2 ranks of worker (1-2) failed at working.py")
        assert "stopped on an exception; `c` passes the exception to the caller: worker 1-2" in me("list")
        assert me("cast worker ranks(post-mortem) p secret") == "[1] 7\n[2] 14\n"
        assert me("continue") == "2 ranks of worker (1-2): resumed\n"
        with pytest.raises(ActorError, match="is bad"):
            result.get(WAIT)
        me("postmortem off")
        with pytest.raises(ActorError, match="is bad"):
            mesh.fail.call((3,)).get(WAIT)
        assert me("list") == "nothing is stopped\n"


def test_deaths_of_ranks_that_run_are_announced() -> None:
    spawn(gpus=3)
    with person() as me:
        wait_until(lambda: me("list all").count("| worker ") == 3, 15)
        os.kill(me.client.ask(asked("inspect.list", state="all", actor="", ranks=""))["rows"][2]["pid"], signal.SIGKILL)
        me.heard("rank 2 of worker has ended: was killed by SIGKILL")


def test_a_mesh_that_is_stopped_is_no_death() -> None:
    first, second = proc_mesh(gpus=2), spawn(gpus=2)
    first.initialized.get(WAIT)
    with person() as me:
        me("status")
        first.stop().get(WAIT)
        mesh = second.fail.call((0,))
        with pytest.raises(ActorError):
            mesh.get(WAIT)
        me("status")
        assert me.terminal.notices == []

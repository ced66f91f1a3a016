"""What is said of ranks that run, wait, stand, do not answer or have ended; and that looking at them disturbs none."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt import MeshError, proc_mesh
from tests.debug.harness import Person, person
from tests.debug.waits import Waits, line_of
from tests.debug.working import Worker
from tests.support.pausing import paused
from tests.support.untyped import asked
from tests.support.waiting import wait_until

WAIT = 20
STOPPED_BY_A_SIGNAL = "its process was stopped by a signal (SIGCONT resumes it)"


def pid_of(me: Person, rank: int) -> int:
    rows = me.client.ask(asked("inspect.list", state="all", actor="", ranks=""))["rows"]
    return next(int(row["pid"]) for row in rows if row["rank"] == rank)


def rows_of(me: Person, state: str) -> list[tuple[int, str, str]]:
    """Return (rank, state, note) of what ``list STATE`` shows."""
    me(f"list {state}")
    cells = [[cell.strip() for cell in row.split("|")] for row in me.terminal.shown.splitlines() if "{'gpus'" in row]
    return [(int(row[2]), *row[5].removesuffix(")").partition(" (")[::2]) for row in cells]


def test_looking_interrupts_nobody() -> None:
    """The C library's poll() returns early for any signal that comes; user code would not see it otherwise."""
    mesh = proc_mesh(gpus=4).spawn("w", Waits).get(WAIT)
    result = mesh.polled.call()
    place = f"waits.py:{line_of('poll')}"
    with person() as me:
        me.until("where", place, "4/4")
        me.until("list blocked", f"{place} (polled)")
        for line in ("where", "where -v w ranks(1:)", "list all", "status", "p w self.rank", "logs w", "whatis w self"):
            me(line)
            assert me.ok, line
        assert me("p w self.polls") == "[0-3] []\n"
        me("interrupt w ranks(2)")
        assert f"waits.py({line_of('poll')})polled()" in me.terminal.shown
        me("continue")
        me.until("p w self.polls", "[2] [-1]")  # and an interrupt is seen there, as it must be
        assert me.terminal.shown == "[0-1,3] []\n[2] [-1]\n"
        me("p w self.go.set()")
        assert me("interrupt w").startswith("[0-3]\n> ")  # wakes them all
        me("continue")
    assert result.get(WAIT).values() == [1, 1, 2, 1]


def test_ranks_that_stand_run_and_do_not_answer() -> None:
    mesh = proc_mesh(gpus=5).spawn("w", Waits).get(WAIT)
    result = mesh.wait.call()
    place = f"waits.py:{line_of('wait')} (wait)"
    with person() as me:
        me.until("where", place.partition(" ")[0], "5/5")
        me("interrupt w ranks(1,4)")
        pids = pid_of(me, 2), pid_of(me, 4)
        with paused(*pids):
            silent = ("not-answering", "")
            wait_until(lambda: rows_of(me, "not-answering") == [(2, *silent), (4, *silent)], WAIT)
            me.heard(f"not answer: {STOPPED_BY_A_SIGNAL}")
            listed = me("list not-answering")
            assert place in listed and f"\nnot-answering ({STOPPED_BY_A_SIGNAL}): w 2,4\n" in listed
            assert [row[0] for row in rows_of(me, "running")] == [0, 3]
            status = me.until("status", "w 0,3: blocked at waits.py")
            assert "w 2: not-answering" in status
            assert f"w 4: not-answering at {place}" in status
            assert f"w 1: stopped at {place}" in status
            where = me("where w")
            assert "5 ranks of" in where
            assert "3 answered" in where
            assert f"2/5  gpus=2:5:2: does not answer: {STOPPED_BY_A_SIGNAL}" in where.replace("          ", "")
            assert "1 (gpus=1)  └ stopped in the debugger" in where
            assert "blocked" in where
            assert "likely culprits: gpus=2:5:2 (at another place than the other 3)" in where
            assert me("where w ranks(stopped)").startswith("1 rank of mesh1\n")
            assert "stopped in the debugger" in me.terminal.shown
            values = me("p w self.rank").splitlines()
            assert values[:3] == ["[0] 0", "[1] 1", "[3] 3"]
            assert values[3:] == [f"2 ranks of w (2,4): no answer ({STOPPED_BY_A_SIGNAL})"]
            assert not me.ok
            assert f"no answer ({STOPPED_BY_A_SIGNAL})" in me("interrupt w ranks(2)")
            lines = me("cast w ranks(1:) p self.rank").splitlines()
            assert sorted(lines) == [
                "2 ranks of w (2-3): not stopped",
                "[1] 1",
                f"rank 4 of w: no answer ({STOPPED_BY_A_SIGNAL})",
            ]
        wait_until(lambda: me("list not-answering") == "no rank is not-answering\n", WAIT)
        me.heard("again")
        assert me("cast w ranks(4) p self.rank") == "[4] 4\n"
        assert me("continue") == "2 ranks of w (1,4): resumed\n"
        me("p w self.go.set()")
    assert result.get(WAIT).values() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_rank_that_exits_and_the_others() -> None:
    mesh = proc_mesh(gpus=3).spawn("worker", Worker).get(WAIT)
    result: Any = mesh.spin.call()
    with person() as me, person() as other:
        me.until("where", "_train", "3/3")
        me("interrupt worker ranks(0:2)")
        me.wait("worker", "ranks(0:2)")
        assert me("continue worker ranks(0)") == "rank 0 of worker: resumed\n"
        # On a busy machine it is at one instruction still at the next look: it has not left the prompt yet.
        wait_until(lambda: [row[:2] for row in rows_of(me, "running")] == [(0, "running"), (2, "running")], WAIT)
        assert me("list").count("| worker ") == 1
        me("attach worker 1")
        assert "-> self.step += 1" in me("n") + me("n")
        other("p worker ranks(2) __import__('os')._exit(7)")
        *_, last = other.terminal.shown.splitlines()  # on a busy machine it is said before who is waited for
        assert last == "rank 2 of worker: ended (exited with code 7)"
        with pytest.raises(MeshError, match="exited with code 7"):
            result.get(WAIT)
        assert rows_of(other, "dead") == [(2, "dead", "exited with code 7")]
        assert "ended: 2 (exited with code 7)" in other("status")
        assert "_train()" in me("n")
        assert me("p self.rank") == "1\n"
        assert me.prompt == "(worker 1 gpus=1) "
        assert "worker 1 is running" in me("c")
        assert [row[:2] for row in rows_of(me, "running")] == [(0, "running"), (1, "running")]
        me("p worker ranks(running) setattr(self, 'stop', True)")
        me.until("where worker", "2/3  gpus=0:2  waits for messages", "2 (gpus=2): exited with code 7")

"""What ``meshrt top`` is told of ranks that run, wait, hang, are stopped, die and come back; and its one table."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from meshrt import ActorMesh, SelectionError, SupervisionError, proc_mesh
from meshrt.commandline.shell import run_words
from meshrt.top.asking import Asking
from meshrt.top.model import Model, Row
from meshrt.transport.tools import own_program
from tests.support.documented import parts_of, section
from tests.support.holders import MIB, Holder
from tests.support.pausing import paused
from tests.support.programs import another_program, project, run_python
from tests.support.relays import Relay
from tests.support.waiting import wait_until

WAIT = 30
SECTION = section("The object of `meshrt top`")


class Watcher:
    """Looks at this program as the screen does."""

    def __init__(self) -> None:
        program = own_program()
        assert program is not None
        self.asking = Asking(program)
        self.model = Model()

    def look(self, ranks: str = "") -> list[Row]:
        self.model.take(self.asking.look(ranks, ""), chosen=bool(ranks))
        return self.model.rows()

    def sees(self, condition: Callable[[list[Row]], object]) -> list[Row]:
        """Look again and again until ``condition`` holds."""
        wait_until(lambda: condition(self.look()), WAIT)
        return self.model.rows()


@contextlib.contextmanager
def watching() -> Iterator[Watcher]:
    watcher = Watcher()
    try:
        yield watcher
    finally:
        watcher.asking.close()


@pytest.mark.slow
def test_ranks_that_work_wait_stand_hold_the_gil_or_are_stopped_each_have_their_row(tmp_path: Path) -> None:
    mesh = proc_mesh(hosts=2, gpus=2)
    holder: ActorMesh[Holder] = mesh.spawn("holder", Holder).get(WAIT)
    pids = holder.pid.call().get(WAIT).values()
    works, holds, stands = (holder.slice(hosts=n // 2, gpus=n % 2) for n in (0, 2, 3))
    with watching() as me:
        assert [row.pid for row in me.look()] == pids
        stands.halt.broadcast()
        for _ in range(5):
            stands.pid.broadcast()
        holds.hold_gil.broadcast(str(tmp_path / "inside"))
        wait_until((tmp_path / "inside").exists)
        with paused(pids[1]):
            rows = me.look()
            # At once, although it has not been missed yet, and those that cannot answer have their figures, too.
            assert rows[1].state == "not-answering" and "stopped by a signal" in rows[1].note
            assert all(row.rss and row.cpu is not None for row in rows)
            assert rows[2].actors is None
            works.grow.call_one(20 * MIB).get(WAIT)
            rows = me.sees(lambda rows: rows[2].state == "not-answering" and rows[3].state == "stopped")
            assert "GIL" in rows[2].note
            assert me.sees(lambda rows: (rows[2].cpu or 0) > 0)[1].cpu == 0
            assert rows[0].growth is not None and rows[0].growth > 15 * MIB
            assert (rows[3].queue, rows[3].more) == (5, False)
            assert rows[3].actors is not None and rows[3].actors[0].endpoint == "halt"
            assert rows[3].place.startswith("holders.py:")
            assert [row.rank for row in me.look("stopped & hosts=1")] == [3]
            with pytest.raises(SelectionError, match="no dimension 'host'"):
                me.look("host=1")
            how = me.asking.how_to_enter(rows[3])
            assert how[0].endswith("attach holder 3") and "kill -CONT" in me.asking.how_to_enter(rows[1])[0]
            assert "interrupt holder ranks(0)" in me.asking.how_to_enter(rows[0])[0]
            # What there is to know of one rank: it is asked, whichever meshes have one of that number.
            assert "halt  support/holders.py" in me.asking.stacks(rows[3])
            shown = me.asking.variables(rows[0])
            assert "holders.CACHE" in shown and "[0-" not in shown
            assert "no output yet" in me.asking.log(rows[0])
        before = me.model.get(rows[0].key)
        works.pid.call_one().get(WAIT)
        assert before is not None and me.sees(lambda rows: rows[0].calls)[0].calls
        os.kill(pids[2], signal.SIGKILL)
        rows = me.sees(lambda rows: rows[2].state == "dead")
        assert (rows[2].note, rows[2].pid, rows[2].rss) == ("was killed by SIGKILL", pids[2], None)
        assert "meshrt postmortem" in me.asking.how_to_enter(rows[2])[0]
        with pytest.raises(SupervisionError):
            holds.pid.call_one().get(WAIT)
        mesh.stop(grace=0.0).get(WAIT)
        other = proc_mesh(n=1, name="other")
        other.initialized.get(WAIT)
        rows = me.look()
        assert [(row.mesh, row.state) for row in rows] == [("other", "idle"), *[("mesh1", "dead")] * 4]
        assert [row.note for row in rows[2:4]] == ["its mesh was stopped", "was killed by SIGKILL"]


def test_ranks_of_a_host_whose_agent_does_not_answer_say_so() -> None:
    mesh = proc_mesh(n=2)
    mesh.initialized.get(WAIT)
    with watching() as me:
        agent = psutil.Process(me.look()[0].pid).ppid()
        with paused(agent):
            assert [(row.state, row.note, row.rss) for row in me.look()] == [
                ("not-answering", "the agent of its host does not answer", None)
            ] * 2
        me.sees(lambda rows: all(row.state == "idle" and row.rss for row in rows))


def test_a_rank_that_was_started_again_says_so_and_why(tmp_path: Path) -> None:
    relay: ActorMesh[Relay] = proc_mesh(n=1).spawn("relay", Relay, str(tmp_path), max_restarts=1).get(WAIT)
    pid = relay.pid.call_one().get(WAIT)
    with watching() as me:
        assert [row.note for row in me.look()] == [""]
        os.kill(pid, signal.SIGKILL)
        (row,) = me.sees(lambda rows: rows[0].incarnation and rows[0].state in ("running", "idle") and rows[0].actors)
        assert row.note == "restarted (1): it was killed by SIGKILL" and row.pid not in (0, pid)


@pytest.mark.slow
def test_one_table_and_one_object_without_textual() -> None:
    without = "import sys; sys.modules['textual'] = None; from meshrt.cli import main; sys.exit(main())"
    imports = "from meshrt import proc_mesh\nfrom tests.support.holders import Hoarder\n"
    code = f"{imports}proc_mesh(n=1).spawn('h', Hoarder).get()"
    with another_program(code) as program:
        pid = str(program.pid)
        done = run_python("-c", without, "top", pid, "--once", "--every", "0.2", "--sort", "cpu")
        assert done.returncode == 0 and "1 rank: 1 " in done.stdout
        done = run_python("-c", without, "top", pid, "--once", "--json", "--every", "0.2")
        found = json.loads(done.stdout)
        (rank,) = found["ranks"]
        assert (found["pid"], rank["coords"]) == (program.pid, {"n": 0}) and rank["state"] in ("running", "idle")
        assert rank["rss"] > MIB and rank["cpu"] is not None

        def grows() -> bool:
            seen = json.loads(run_python("-c", without, "top", pid, "--once", "--json", "--every", "0.2").stdout)
            return bool(seen["ranks"][0]["growth"] > MIB)

        wait_until(grows, WAIT, "what a rank gets between the looks is told")
        told = {part: set(re.findall(r"`(\w+)`", f"{part} {keys}")) for part, keys in parts_of(SECTION).items()}
        assert (told["object"], told["rank"], told["actor"]) == (set(found), set(rank), set(rank["actors"][0]))
        done = run_python("-c", without, "top", pid)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
        said, _, command = done.stderr.strip().partition("; to install it: ")
        assert said == "meshrt top: needs textual (meshrt top --once shows one table without it)"
        assert shlex.split(command) == [
            sys.executable,
            "-m",
            "pip",
            "install",
            *project()["optional-dependencies"]["top"],
        ]
        assert program.stdin is not None
        program.stdin.write("\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--json",), "needs --once"),
        (("--once", "--serve"), "--once cannot be combined with --serve"),
        (("--once", "--port", "1"), "need --serve"),
        (("--serve", "--port", "0"), "from 1 to 65535"),
        (("--serve", "--host", "::"), "expected one address of this machine, not all of them"),
        (("--once", "--ranks", "n="), "expected"),
        (("--once",), "no meshrt program of this user is running"),
    ],
)
def test_what_is_asked_wrongly_is_said(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_words(["top", *words]) == 2
    assert complaint in "".join(capsys.readouterr())  # with --json on standard output

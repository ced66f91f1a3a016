"""Whatever ends, ends alone: a terminal, a rank, a mesh, a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from meshrt import ActorError, ActorMesh, LocalEngine, ProcessDied, SupervisionError, proc_mesh
from tests.debug.actors import Debugee
from tests.debug.harness import attached, person
from tests.support.programs import environment
from tests.support.waiting import wait_until

WAIT = 20


def spawn(**sizes: Any) -> ActorMesh[Debugee]:
    return proc_mesh(**sizes).spawn("debugee", Debugee).get(WAIT)


def a_terminal() -> subprocess.Popen[str]:
    """``python -m meshrt.debug`` on this program, commands by pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "meshrt.debug", "--pid", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )


@pytest.mark.row("D1")
def test_a_terminal_killed_while_attached_changes_nothing() -> None:
    mesh = spawn(gpus=2)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
        with a_terminal() as other:
            assert other.stdin is not None
            other.stdin.write("attach debugee 1\n")
            other.stdin.flush()
            wait_until(lambda: f"process {other.pid} is attached" in me("cast debugee ranks(1) p 1"), WAIT)
            other.kill()
        wait_until(lambda: me("cast debugee ranks(1) p rank") == "[1] 1\n", WAIT)
        shown = me("attach debugee 1")  # where it is; what it wrote last was shown as an answer
        assert shown.splitlines()[1].startswith("> ")
        assert shown.splitlines()[2] == "-> breakpoint()  # @work"
        me("detach")
        assert "2 ranks" in me("continue")
    assert result.get(WAIT).values() == [20, 21]


@pytest.mark.row("D2")
def test_a_rank_killed_while_attached() -> None:
    mesh = spawn(gpus=3)
    pids = mesh.pid.call().get(WAIT).values()
    result = mesh.work.call()
    with attached("debugee", 1) as me:
        os.kill(pids[1], signal.SIGKILL)
        wait_until(lambda: me.prompt == "meshrt_dbg> ", WAIT)
        assert "debugee 1 has ended: was killed by SIGKILL" in me.terminal.shown
        with pytest.raises(ProcessDied):
            result.get(WAIT)
        assert [row["rank"] for row in me.rows()] == [0, 2]
        assert "debugee rank 1 has ended: it was killed by SIGKILL" in me("attach debugee 1")
        assert me("cast debugee ranks(:) p rank").startswith("[0] 0\n[2] 2\n")
        assert "ended: 1 (was killed by SIGKILL)" in me("status")
        assert "2 ranks of debugee (0,2): resumed" in me("continue")


@pytest.mark.row("D2")
def test_a_rank_killed_during_a_cast() -> None:
    mesh = spawn(gpus=3)
    mesh.work.call()
    with person() as me:
        me.wait("debugee")
        answer = me("cast debugee ranks(:) import os; rank != 1 or os.kill(os.getpid(), 9)")
        assert "rank 1 of debugee: ended (was killed by SIGKILL)" in answer
        assert "[0,2] True" in answer


def test_a_stopped_rank_that_nobody_looks_at_is_announced_when_it_dies() -> None:
    mesh = spawn(gpus=2)
    pids = mesh.pid.call().get(WAIT).values()
    mesh.work.call()
    with person() as me:
        me.wait("debugee")
        os.kill(pids[0], signal.SIGKILL)
        me.heard("rank 0 of debugee has ended: was killed by SIGKILL")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.row("D7")
def test_a_rank_that_nobody_looks_at_is_announced_again_and_waits(capfd: pytest.CaptureFixture[str]) -> None:
    pending = spawn(n=1).work.call()
    said: list[str] = []

    def lines() -> list[str]:
        said.extend(line for line in capfd.readouterr().err.splitlines() if "stopped" in line)
        return said

    wait_until(lambda: len(lines()) >= 2, 90, "a reminder, after 30 s")
    first, again = said
    assert first.startswith("meshrt: rank 0 of debugee stopped at actors.py:"), first
    assert again.startswith("meshrt: reminder: rank 0 of debugee stopped at actors.py:"), again
    assert all(line.endswith("; python -m meshrt.debug") for line in said), said
    with person() as me:
        me("continue debugee")
        assert me.ok
    assert pending.get(WAIT)


def test_a_host_is_lost_while_its_ranks_are_stopped() -> None:
    mesh = spawn(hosts=2, gpus=2, engine=LocalEngine(agents=2))
    pids = mesh.pid.call().get(WAIT).values()
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
        assert {row["host"].rpartition("~")[2] for row in me.rows()} == {"0", "1"}
        me("attach debugee 2")
        psutil.Process(psutil.Process(pids[2]).ppid()).kill()
        wait_until(lambda: me.prompt == "meshrt_dbg> ", WAIT)
        assert "debugee 2 has ended" in me.terminal.shown
        me.heard("rank 3 of debugee has ended")
        with pytest.raises(SupervisionError):
            result.get(WAIT)
        assert me("cast debugee ranks(hosts=0) p rank") == "[0] 0\n[1] 1\n"
        assert "2 ranks of debugee (0-1): resumed" in me("continue")


@pytest.mark.row("D3")
def test_stop_releases_stopped_ranks() -> None:
    with proc_mesh(gpus=3) as procs:
        mesh = procs.spawn("debugee", Debugee).get(WAIT)
        pids = mesh.pid.call().get(WAIT).values()
        result = mesh.work.call()
        with attached("debugee", 2) as me:
            procs.stop().get(WAIT)
            wait_until(lambda: me.prompt == "meshrt_dbg> ", WAIT)
            assert me("list") == "nothing is stopped\n"
            assert not any(psutil.pid_exists(pid) for pid in pids)
        with pytest.raises(ActorError, match="the mesh was stopped while this rank was stopped in the debugger"):
            result.get(WAIT)


@pytest.mark.row("D3")
def test_stop_releases_a_rank_within_a_question() -> None:
    with proc_mesh(gpus=1) as procs:
        mesh = procs.spawn("debugee", Debugee).get(WAIT)
        mesh.work.call()
        with attached("debugee", 0) as me:
            me("name = input('? ')")
            procs.stop().get(WAIT)
            wait_until(lambda: me.prompt == "meshrt_dbg> ", WAIT)


@pytest.mark.row("D4")
def test_a_second_terminal_is_told_who_holds_a_rank() -> None:
    mesh = spawn(gpus=2)
    result = mesh.work.call()
    with person() as me, person() as other:
        me.wait("debugee")
        me("attach debugee 0")
        refusal = other("attach debugee 0")
        assert f"held by the terminal of process {os.getpid()}" in refusal
        assert "--steal" in refusal
        answer = other("cast debugee ranks(:) p rank")
        assert answer == f"[1] 1\nrank 0 of debugee: not asked (process {os.getpid()} is attached)\n"
        assert "rank 0 of debugee: not asked" in other("continue")
        other("attach --steal debugee 0")
        assert other("p rank") == "0\n"
        wait_until(lambda: me.prompt == "meshrt_dbg> ", WAIT)
        assert "has taken over the rank" in me.terminal.shown
        other("c")
    assert result.get(WAIT).values() == [20, 21]


def test_the_program_ends_while_somebody_looks() -> None:
    code = (
        "from meshrt import proc_mesh\nimport sys\nproc_mesh(n=1).initialized.get()\nprint('up', flush=True)\ninput()\n"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert program.stdout is not None
    assert program.stdin is not None
    assert program.stdout.readline() == "up\n"
    terminal = subprocess.Popen(
        [sys.executable, "-m", "meshrt.debug", "--pid", str(program.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert terminal.stdin is not None
    assert terminal.stdout is not None
    terminal.stdin.write("list\n")
    terminal.stdin.flush()
    assert terminal.stdout.readline() == "nothing is stopped\n"
    program.communicate("\n", timeout=WAIT)
    assert program.returncode == 0
    assert terminal.stdout.readline() == f"the program (pid {program.pid}) has ended\n"
    terminal.communicate(timeout=WAIT)
    assert terminal.returncode == 0


def test_garbage_is_refused_in_words() -> None:
    mesh = spawn(gpus=1)
    mesh.work.call()
    with person() as me:
        me.wait("debugee")
        for line in ("cast", "cast debugee", "cast debugee ranks(", "cast debugee ranks()", "cast debugee ranks(0)",
                     "attach", "attach debugee", "attach debugee x", "attach ../x 1", "wait", "list x", "\x00", "c c",
                     "cast debugee ranks(0:1:0) p 1", "attach debugee 0,0 1", "?? x", "ranks(0)"):  # fmt: skip
            shown = me(line)
            assert not me.ok, line
            assert 0 < len(shown) < 800, line
            assert "Traceback" not in shown
        assert me("cast debugee ranks(0) p rank") == "[0] 0\n"

"""``python -m meshrt.debug`` for scripts: commands, pipes, exit codes, the choice of a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from meshrt import proc_mesh
from meshrt.transport import tools
from tests.debug.actors import Debugee
from tests.debug.pty_harness import screen
from tests.support.programs import another_program, environment, run_python
from tests.support.waiting import wait_until

WAIT = 20


def debug(*commands: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    arguments = [part for command in commands for part in ("-c", command)]
    return run_python("-m", "meshrt.debug", *arguments, input=input)


@pytest.mark.usefixtures("stopped")
def test_commands_in_a_row() -> None:
    done = debug("cast debugee ranks(:) p rank", "attach debugee 3", "p rank", "detach", "status")
    assert done.returncode == 0
    assert done.stdout.startswith("[0] 0\n[1] 1\n[2] 2\n[3] 3\nattached to debugee 3")
    assert "\n3\n" in done.stdout
    assert "debugee 0-3: stopped at actors.py" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_what_a_script_leaves_behind_when_it_fails() -> None:
    done = debug("break test_cli.py:1", "tbreak test_cli.py:2", "clear 1", "continue debugee ranks(1)", "lst")
    assert done.returncode == 1
    left = "left behind: breakpoint 2 at test_cli.py:2 (clear 2); stopped ranks: debugee 0,2-3 (continue)\n"
    assert done.stderr == left
    # Breakpoints of others are not its own; a script that is obeyed to its end leaves what it leaves.
    assert debug(input="lst").stderr == "left behind: stopped ranks: debugee 0,2-3 (continue)\n"
    assert debug("clear 2", "continue").stderr == "" == debug("lst").stderr


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_the_first_failure_ends_it() -> None:
    done = debug("attach debuge 1", "continue")
    assert done.returncode == 1
    assert "did you mean 'debugee'?" in done.stdout
    assert "resumed" not in done.stdout
    assert debug("cast debugee ranks(9) p 1").returncode == 1
    assert debug("lst").returncode == 1
    assert debug("wait debugee ranks(:) 5").returncode == 0
    assert debug("wait nobody 0.2").returncode == 1


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_commands_by_pipe() -> None:
    done = debug(input="list\nattach debugee 2\np rank\ndetach\ncast debugee ranks(hosts=0) p rank\n")
    assert done.returncode == 0
    assert done.stdout.count("| debugee ") == 4
    assert "2\ndetached from debugee 2" in done.stdout
    assert "[0] 0\n[1] 1\n" in done.stdout
    assert "meshrt_dbg>" not in done.stdout
    assert debug(input="nonsense\nlist\n").returncode == 1


@pytest.mark.nightly
@pytest.mark.usefixtures("stopped")
def test_quit_in_a_script_needs_its_answer() -> None:
    done = debug("attach debugee 1", "q")
    assert "not aborted" in done.stdout
    assert debug("cast debugee ranks(1) p rank").stdout == "[1] 1\n"


def test_help_needs_a_program_but_no_stop() -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    done = debug("help", "help cast", "help ls")
    assert "ACTOR ranks(...) COMMAND" in done.stdout
    assert "Equal answers are shown once" in done.stdout
    assert "no command 'ls'; did you mean" in done.stdout
    assert done.returncode == 1


def test_no_program() -> None:
    done = debug("list")
    assert done.returncode == 2
    assert done.stderr.startswith("meshrt debug: no meshrt program of this user is running")
    for named in (["1"], ["--pid", "1"]):
        done = run_python("-m", "meshrt.debug", *named)
        assert done.returncode == 2 and done.stderr.startswith("meshrt debug: PID 1 is not a meshrt")
    for more, expected in (
        (["--pid", "2"], "expected RUN or --pid RUN, not both"),
        (["--open", "f"], "cannot be combined with RUN"),
    ):
        done = run_python("-m", "meshrt.debug", "1", *more)
        assert done.returncode == 2 and expected in done.stderr


@pytest.mark.slow
def test_several_programs() -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    with another_program() as other:
        done = debug("list")
        assert done.returncode == 2
        assert f"pid {os.getpid()}" in done.stderr
        assert f"pid {other.pid}" in done.stderr
        assert "choose one with meshrt debug RUN" in done.stderr
        program = next(each for each in tools.programs() if each.pid == other.pid)
        for named in (["--pid", str(other.pid)], [program.run_id], [str(program.run_directory)]):
            done = run_python("-m", "meshrt.debug", *named, "-c", "status")
            assert done.returncode == 0 and "1 rank alive" in done.stdout
        for pid in ([], ["--pid", "1"]):
            done = run_python("-m", "meshrt.debug", "--json", *pid, "-c", "status")
            (record,) = map(json.loads, done.stdout.splitlines())
            assert (done.returncode, done.stderr, record["ok"]) == (2, "", False)
            assert record["error"]["type"] == "UsageError"
            assert [program["pid"] for program in record["programs"]] == [other.pid, os.getpid()]
        with screen("-m", "meshrt.debug") as me:
            me.sees("which program?")
            me.types("7")
            me.sees("expected a number from 1 to 2, or a pid", "which program?")
            me.types(str(other.pid))
            me.sees("nothing is stopped yet", "meshrt_dbg>")
            me.types("status")
            me.sees("1 rank alive")
            other.communicate("\n", timeout=WAIT)
            me.sees(f"the program (pid {other.pid}) has ended")
            me.ends()
            assert me.code == 0


def test_a_program_that_does_not_answer_is_waited_for_and_named() -> None:
    with another_program() as other:
        other.send_signal(signal.SIGSTOP)
        with screen("-m", "meshrt.debug") as me:
            try:
                me.sees(
                    f"meshrt: process {other.pid} does not answer yet "
                    f"(stopped by a signal; kill -CONT {other.pid} resumes it); waiting, Ctrl-C ends the wait"
                )
            finally:
                other.send_signal(signal.SIGCONT)
            me.sees("nothing is stopped yet", "meshrt_dbg>")
            me.types("quit")
            me.ends()
        other.communicate("\n", timeout=WAIT)


def test_a_script_may_wait_for_an_actor_to_come() -> None:
    procs = proc_mesh(n=2)
    procs.initialized.get(WAIT)
    with subprocess.Popen(
        [sys.executable, "-m", "meshrt.debug", "-c", "wait debugee 20", "-c", "continue"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as waiting:
        result = procs.spawn("debugee", Debugee).get(WAIT).work.call()
        out, _ = waiting.communicate(timeout=WAIT)
        assert waiting.returncode == 0
        assert out == "stopped: 2 ranks: 0-1\n2 ranks of debugee (0-1): resumed\n"
    assert result.get(WAIT).values() == [20, 21]


@pytest.mark.nightly
def test_the_program_says_it_once_per_wave() -> None:
    code = (
        "from meshrt import proc_mesh\n"
        "from meshrt.debug.broker import notices\n"
        "from tests.debug.actors import Debugee\n"
        "notices.QUIET_SECONDS = 1.0\n"  # a loaded machine splits a wave otherwise
        "mesh = proc_mesh(hosts=4, gpus=4).spawn('debugee', Debugee).get()\n"
        "print(mesh.work.call().get().values()[15])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as program:
        assert program.stderr is not None
        said = [program.stderr.readline()]
        assert debug("continue").returncode == 0
        out, err = program.communicate(timeout=WAIT)
    assert out == "35\n"
    said += [line for line in err.splitlines() if "stopped at" in line]
    assert len(said) == 1
    assert said[0].endswith(" (work); python -m meshrt.debug\n")
    assert "16 ranks of debugee stopped at actors.py:" in said[0]


@pytest.mark.nightly
def test_entering_from_a_script_without_a_terminal() -> None:
    code = (
        "from meshrt import debug_client, proc_mesh\n"
        "from tests.debug.actors import Debugee\n"
        "res = proc_mesh(n=2).spawn('debugee', Debugee).get().work.call()\n"
        "debug_client().enter.call_one().get()\n"
        "print('left', res.get().values())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment()
    ) as program:
        wait_until(lambda: debug("wait debugee 20").returncode == 0, WAIT)
        assert debug("continue").returncode == 0
        out, _ = program.communicate(timeout=WAIT)
    assert out == "left [20, 21]\n"

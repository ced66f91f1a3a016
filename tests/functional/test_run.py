"""``meshrt run``: a script with somebody beside it, as its launcher and whoever sends signals see it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.debug.pty_harness import screen
from tests.support.footprint import marked_processes
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

SCRIPT = """\
import meshrt, os, signal, sys, time

@meshrt.record
def main():
    exec(sys.argv[1], globals())

main()
"""


def command(tmp_path: Path, code: str) -> list[str]:
    (tmp_path / "train.py").write_text(SCRIPT)
    return ["-m", "meshrt", "run", str(tmp_path / "train.py"), code]


def launched(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """The environment of a worker, and its file."""
    file = tmp_path / "error.json"
    return environment(TORCHELASTIC_ERROR_FILE=str(file), RANK="5"), file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("print('done')", 0, None),
        ("os._exit(7)", 7, None),
        ("raise ValueError('bad')", 1, "ValueError: bad"),
        ("os.abort()", -signal.SIGABRT, r"the script (pid \d+) was killed by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, r"the script (pid \d+) was killed by SIGKILL"),
    ],
)
def test_it_ends_as_its_script_and_tells_what_that_cannot(
    code: str, status: int, message: str | None, tmp_path: Path
) -> None:
    env, file = launched(tmp_path)
    done = run_python(*command(tmp_path, code), env=env)
    assert done.returncode == status and done.stdout == ("done\n" if not status else "")
    assert file.exists() == (message is not None)
    if message is not None:
        document = json.loads(file.read_text())
        told = document["message"]["message"]
        pid = document["meshrt"]["records"][0]["pid"]
        assert told == message.replace(r"\d+", str(pid)) and document["meshrt"]["worker"]["rank"] == 5
    stack = "Fatal Python error: Aborted (most recent call first):" in done.stderr
    assert stack == (status == -signal.SIGABRT)
    if stack:
        assert "in main" in document["message"]["extraInfo"]["py_callstack"]


def test_what_the_script_has_said_itself_stays(tmp_path: Path) -> None:
    """It raises, and its interpreter crashes on the way out."""
    env, file = launched(tmp_path)
    done = run_python(*command(tmp_path, "import atexit; atexit.register(os.abort); raise ValueError('bad')"), env=env)
    assert done.returncode == -signal.SIGABRT
    assert json.loads(file.read_text())["message"]["message"] == "ValueError: bad"


@pytest.mark.parametrize("to_group", [False, True])
def test_a_signal_goes_on_to_the_script_once_and_is_no_failure(to_group: bool, tmp_path: Path) -> None:
    env, file = launched(tmp_path)
    code = (
        "come, wake = os.pipe(); os.set_blocking(wake, False); signal.set_wakeup_fd(wake)\n"
        "for number in (signal.SIGTERM, signal.SIGUSR1): signal.signal(number, lambda *_: None)\n"
        "print('ready', flush=True)\n"
        "while (number := os.read(come, 1)[0]) != signal.SIGUSR1: print(number, flush=True)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL); print('last', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, *command(tmp_path, code)], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as runner:
        send = os.killpg if to_group else os.kill
        try:
            assert runner.stdout is not None and runner.stdout.readline() == "ready\n"
            send(runner.pid, signal.SIGTERM)
            assert runner.stdout.readline() == f"{signal.SIGTERM:d}\n"
            os.kill(runner.pid, signal.SIGUSR1)
            assert runner.stdout.readline() == "last\n"
            send(runner.pid, signal.SIGTERM)
            assert runner.wait(30) == -signal.SIGTERM
        finally:
            runner.kill()
    assert not file.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGRTMIN + 1, signal.SIGCONT, signal.SIGALRM, signal.SIGTSTP])
def test_a_signal_of_any_number_goes_on_to_the_script(number: int, tmp_path: Path) -> None:
    code = (
        f"signal.signal({int(number)}, lambda *_: (print('handled', flush=True), sys.exit(7)))\n"
        # A signal that comes as Python is about to sleep is handled behind that.
        "print('ready', flush=True)\nwhile True: time.sleep(0.1)"
    )
    arguments = [sys.executable, *command(tmp_path, code)]
    with subprocess.Popen(
        arguments, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as runner:
        try:
            assert runner.stdout is not None and runner.stdout.readline() == "ready\n"
            runner.send_signal(number)
            assert runner.wait(30) == 7 and runner.stdout.read() == "handled\n"
        finally:
            runner.kill()


def test_the_script_does_not_outlive_it(tmp_path: Path) -> None:
    env, _ = launched(tmp_path)
    arguments = [sys.executable, *command(tmp_path, "print('ready', flush=True); time.sleep(60)")]
    with subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None and runner.stdout.readline() == "ready\n"
        runner.kill()
        wait_until(lambda: not marked_processes(), 10, "the script has ended")


def test_how_it_is_used() -> None:
    done = run_python("-m", "meshrt", "run", "--help")
    assert done.returncode == 0 and "-m meshrt run train.py" in done.stdout
    assert run_python("-m", "meshrt", "run").returncode == 2
    assert "run   " in run_python("-c", "import sys; from meshrt.cli import main; sys.argv[1:] = []; main()").stdout


def test_at_a_terminal_the_script_reads_and_ctrl_c_reaches_it_once(tmp_path: Path) -> None:
    code = (
        "count = []\n"
        "signal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
        "print('read ' + input('ready? '))\n"
        "while not count: time.sleep(0.01)\n"
        "input('again? ')\n"
        "print(f'interrupted {len(count)} times')"
    )
    with screen(*command(tmp_path, code)) as me:
        me.sees("ready? ")
        me.types("yes")
        me.sees("read yes")
        me.child.sendintr()
        me.sees("again? ")
        me.types("now")
        me.sees("interrupted 1 times")
        me.ends()
        assert me.code == 0

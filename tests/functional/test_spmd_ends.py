"""``meshrt run -n``: how ranks of a script end, and what they do at their end, as under torchrun."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from meshrt.show.status import ExitCode
from tests.functional.test_spmd import TRAIN, run, running, script
from tests.support.footprint import marked_processes
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

INTERRUPTED = """
from meshrt.actor.control import ControlThread
settle = ControlThread.settle
def interrupted(self, seconds):
    os.kill(os.getpid(), signal.SIGINT)
    settle(self, seconds)
ControlThread.settle = interrupted
"""


BEFORE = """
import os, signal, sys
from meshrt.cli import main
from meshrt.spmd import local
local.start_mesh = lambda *_: signal.raise_signal(int(os.environ["NUMBER"]))
sys.argv = ["meshrt", "run", "-n", "2", "train.py"]
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_there_is_a_program_leaves_no_traceback(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    ended = run_python("-c", BEFORE, cwd=tmp_path, env=environment(NUMBER=str(int(number))))
    status = ExitCode.INTERRUPTED if number is signal.SIGINT else -number
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", "")


def test_a_signal_behind_the_script_has_no_effect(tmp_path: Path) -> None:
    ended = run(script(tmp_path, TRAIN + INTERRUPTED), "pass")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_threads_of_a_script_that_has_ended_are_waited_for(tmp_path: Path) -> None:
    """For longer than the five seconds that an actor has."""
    late = "import threading\nthreading.Thread(target=lambda: (time.sleep(7), print('late', flush=True))).start()\n"
    ended = run(script(tmp_path, TRAIN + late), "pass")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "late\nlate\n", "")


def test_ctrl_c_ends_the_wait_for_threads_of_a_script_that_has_ended(tmp_path: Path) -> None:
    code = TRAIN + (
        "import threading\ndef late():\n    while threading.main_thread().is_alive(): time.sleep(0.01)\n"
        "    print('over', flush=True)\n    time.sleep(600)\nthreading.Thread(target=late, name='late').start()\n"
    )
    with running("-n", "2", script(tmp_path, code), "pass") as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["over\n"] * 2
        where = ("-m", "meshrt.debug", "--pid", str(program.pid), "-c", "where")
        wait_until(lambda: "in its exit, by thread 'late', which" in run_python(*where).stdout, 60)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGINT and "FAILED" not in err and "unfinished work" not in err, err
    # In 3.13 and 3.14 Python itself shows it.
    ours = "interrupted at the exit of this rank: thread 'late', which is not a daemon\n"
    assert err.count(ours) + err.count("\nKeyboardInterrupt: \n") == 2, err


def test_a_process_that_exits_at_once_with_status_0_ends_well(tmp_path: Path) -> None:
    ended = run(script(tmp_path, TRAIN + "time.sleep(1)\nprint('end', flush=True)\n"), "os._exit(0)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_sigterm_to_one_rank_ends_it_as_without_meshrt(tmp_path: Path) -> None:
    ended = run(script(tmp_path, TRAIN + "time.sleep(600)\n"), "os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)")
    assert ended.returncode == 1 and "rank 1 (hosts=0, gpus=1)" in ended.stderr, ended.stderr
    assert "  what     was killed by SIGTERM\n" in ended.stderr, ended.stderr


@pytest.mark.parametrize("hook", ["print('HOOK', kind.__name__, flush=True)", "1 / 0"])
def test_the_hook_of_a_script_is_told_its_error(tmp_path: Path, hook: str) -> None:
    code = f"def hook(kind, error, frames):\n    {hook}\nsys.excepthook = hook\n"
    ended = run(script(tmp_path, TRAIN.replace("loss =", code + "loss =")), "raise ValueError(loss)")
    assert ended.returncode == 1 and "  what     ValueError: 10\n" in ended.stderr, ended.stderr
    assert ended.stdout == ("" if hook == "1 / 0" else "HOOK ValueError\n")
    assert ("Error in sys.excepthook:\n" in ended.stderr) is (hook == "1 / 0"), ended.stderr


@pytest.mark.parametrize("end", ["raise ValueError(loss)", "sys.exit(3)"])
def test_a_rank_that_fails_exits_whole(tmp_path: Path, end: str) -> None:
    """It is not killed while its threads and functions of `atexit` run."""
    at_exit = (
        "import atexit, threading\natexit.register(lambda: (time.sleep(2), print('saved', flush=True)))\n"
        "if rank == 1: threading.Thread(target=lambda: (time.sleep(1), print('written', flush=True))).start()\n"
    )
    code = TRAIN.replace("if rank", at_exit + "if rank") + "else: time.sleep(600)\n"
    ended = run(script(tmp_path, code), end)
    assert (ended.returncode, ended.stdout) == (1, "written\nsaved\n"), ended.stderr
    assert "the script has 30 s to end after SIGTERM; a signal ends it at once" in ended.stderr


def test_the_others_have_time_to_end_when_one_fails(tmp_path: Path) -> None:
    code = (
        "def save(*_):\n    time.sleep(2)\n    print('saved', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('ready', flush=True)\n"
    )
    code = TRAIN.replace("loss =", code + "loss =") + "time.sleep(600)\n"
    ended = run(script(tmp_path, code), "time.sleep(1); os._exit(4)")
    assert (ended.returncode, ended.stdout) == (1, "ready\nready\nsaved\n"), ended.stderr
    assert "  what     exited with code 4\n" in ended.stderr, ended.stderr


def test_a_failure_in_the_exit_ends_the_others_and_is_restarted(tmp_path: Path) -> None:
    code = (
        "import atexit\nfirst = os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'\n"
        "if rank == 1 and first: atexit.register(lambda: os._exit(3))\n"
        "if rank == 0 and first: atexit.register(lambda: time.sleep(600))\n"
        "print('begun', flush=True)\n"
    )
    ended = run("--max-restarts", "1", script(tmp_path, TRAIN.replace("loss =", code + "loss =")), "pass")
    assert (ended.returncode, ended.stdout) == (0, "begun\n" * 4), ended.stderr


def test_sigterm_in_the_exit_is_a_failure(tmp_path: Path) -> None:
    code = TRAIN + "import threading\nthreading.Thread(target=lambda: (time.sleep(0.5), exec(sys.argv[2]))).start()\n"
    ended = run(script(tmp_path, code), "pass", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)")
    assert ended.returncode == 1 and "  what     was killed by SIGTERM\n" in ended.stderr, ended.stderr


FORK = """
import atexit, threading
atexit.register(lambda: print("at exit", flush=True))
def handle(*_):
    print("handled", flush=True)
    os._exit(0)
def write(path):
    global file
    file = open(path, "w")
    file.write("data")
if rank == 1: os._exit(0)
exec(sys.argv[2])
pid = os.fork()
if not pid:
    exec(sys.argv[3])
    sys.exit(5)
time.sleep(0.5)
exec(sys.argv[4])
print("status", os.waitpid(pid, 0)[1], flush=True)
os._exit(0)
"""


HOOK = "sys.excepthook = lambda kind, *_: print('HOOK', kind.__name__, flush=True)"
LATE = "threading.Thread(target=lambda: (time.sleep(1), print('late', flush=True))).start()"
SLEEP, TERM, INT = "time.sleep(600)", "os.kill(pid, signal.SIGTERM)", "os.kill(pid, signal.SIGINT)"


@pytest.mark.parametrize(
    ("before", "child", "then", "shown", "error"),
    [
        ("pass", "pass", "pass", "at exit\nstatus 1280\n", ""),
        ("pass", "write('written')", "pass", "at exit\nstatus 1280\n", ""),
        ("pass", LATE, "pass", "late\nat exit\nstatus 1280\n", ""),
        ("signal.signal(signal.SIGTERM, handle)", SLEEP, TERM, "handled\nstatus 0\n", ""),
        ("pass", SLEEP, TERM, "status 15\n", ""),
        ("pass", SLEEP, INT, "at exit\nstatus 2\n", "KeyboardInterrupt\n"),
        ("pass", "raise ValueError(7)", "pass", "at exit\nstatus 256\n", "ValueError: 7\n"),
        (HOOK, "raise ValueError(7)", "pass", "HOOK ValueError\nat exit\nstatus 256\n", ""),
    ],
)
def test_a_forked_child_ends_as_an_interpreter(
    tmp_path: Path, before: str, child: str, then: str, shown: str, error: str
) -> None:
    written = tmp_path / "written"
    writes, child = "written" in child, child.replace("written", str(written))
    ended = run(script(tmp_path, TRAIN + FORK), "pass", before, child, then)
    assert (ended.returncode, ended.stdout) == (0, shown), ended.stderr
    # The warning of the fork, which the other process prints, may be behind it.
    assert error in ended.stderr and ended.stderr.count("Traceback") == bool(error), ended.stderr
    assert not writes or written.read_text() == "data"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_handler_of_the_script_does_not_interrupt_what_follows(tmp_path: Path, number: signal.Signals) -> None:
    """Rank 0 has ended its script and its exit as the signal comes; rank 1 is in its handler's part."""
    code = (
        "def preempted(*_): raise RuntimeError('preempted')\nsignal.signal(int(sys.argv[2]), preempted)\n"
        "file = open(pathlib.Path(__file__).with_name(f'data-{rank}'), 'w')\nfile.write('results')\n"
    )
    code = TRAIN.replace("loss =", "import pathlib\n" + code + "loss =")
    wait = "try: print('ready', flush=True); time.sleep(600)\nexcept RuntimeError: print('saved', flush=True)"
    with running("-n", "2", script(tmp_path, code), wait, str(int(number))) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        written = tmp_path / "data-0"
        wait_until(lambda: written.exists() and written.read_text())
        program.send_signal(number)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (-number, "saved\n"), err
    assert "Traceback" not in err and "FAILED" not in err, err
    assert [(tmp_path / f"data-{rank}").read_text() for rank in range(2)] == ["results"] * 2
    wait_until(lambda: not marked_processes())


def test_the_handlers_that_a_script_finds(tmp_path: Path) -> None:
    code = TRAIN + "print(signal.getsignal(2).__name__, signal.getsignal(15).name, flush=True)\n"
    assert run(script(tmp_path, code), "pass").stdout == "default_int_handler SIG_DFL\n" * 2


def test_ctrl_c_at_a_breakpoint_in_the_exit(tmp_path: Path) -> None:
    code = TRAIN + "import atexit\nif rank == 0: atexit.register(lambda: breakpoint())\n"
    with running("-n", "2", script(tmp_path, code), "pass") as program:
        assert program.stderr is not None and "stopped" in program.stderr.readline()
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGINT and "unfinished work" not in err, err


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(256)", 0), ("sys.exit(True)", 1), ("sys.exit(0.0)", 1), ("sys.exit('')", 1)]
)
def test_the_status_of_a_script_is_that_of_an_interpreter(tmp_path: Path, end: str, status: int) -> None:
    assert run(script(tmp_path, TRAIN), end).returncode == status


@pytest.mark.parametrize(
    ("raises", "hook", "status", "out"),
    [
        ("raise ValueError(7)", "sys.exit(0)", 0, "HOOK ValueError\n"),
        ("raise ValueError(7)", "sys.exit(4)", 1, "HOOK ValueError\n"),
        ("raise type('Own', (BaseException,), {})", "pass", 1, "HOOK Own\n"),
        ("sys.exit(3)", "pass", 1, ""),
    ],
)
def test_what_a_hook_is_told_and_decides(tmp_path: Path, raises: str, hook: str, status: int, out: str) -> None:
    code = (
        f"def hook(kind, *_):\n    print('HOOK', kind.__name__, flush=True)\n    {hook}\n"
        "if rank == 1: sys.excepthook = hook\n"
    )
    ended = run(script(tmp_path, TRAIN.replace("loss =", code + "loss =")), raises)
    assert (ended.returncode, ended.stdout) == (status, out), ended.stderr


def test_a_hook_is_told_of_ctrl_c(tmp_path: Path) -> None:
    code = HOOK + "\nprint('ready', flush=True)\n"
    with running("-n", "2", script(tmp_path, TRAIN + code + "time.sleep(600)\n"), "pass") as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (-signal.SIGINT, "HOOK KeyboardInterrupt\n" * 2), err

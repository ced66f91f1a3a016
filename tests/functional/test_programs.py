"""The same program in every form in which a person runs one, without a guard around its main part."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.footprint import marked_processes
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

#: Complete, with its actor class in it; no empty lines inside the class, so that it can be typed as well.
PROGRAM = """\
from meshrt import Actor, current_rank, endpoint, proc_mesh
OFFSET = 1000
class Adder(Actor):
    base = 100
    def __init__(self, by):
        self.by = by
    @endpoint
    def add(self, value):
        return OFFSET + self.base + value + self.by + current_rank().rank
    @endpoint
    def fail(self):
        raise KeyError("from the program")

mesh = proc_mesh(n=2)
adder = mesh.spawn("adder", Adder, by=5)
print("VALUES", adder.add.call(1).get(30).values())
"""
EXPECTED = "VALUES [1106, 1107]"
#: The line that fails.
FAILING = 'raise KeyError("from the program")'


@pytest.fixture(autouse=True)
def nothing_outlives_the_program() -> Iterator[None]:
    """Processes of a program end with it, and its sockets too."""
    yield
    wait_until(lambda: not marked_processes(), 5, "every process of the program has ended")
    runtime = Path(os.environ["MESHRT_RUNTIME_DIR"])
    assert not runtime.exists() or not list(runtime.iterdir())


def test_a_script(tmp_path: Path) -> None:
    script = tmp_path / "my_program.py"
    script.write_text(PROGRAM)
    done = run_python(str(script), cwd=tmp_path)
    assert done.returncode == 0 and EXPECTED in done.stdout and done.stderr == ""


def test_a_script_with_its_actor_in_a_module_beside_it(tmp_path: Path) -> None:
    head, _, tail = PROGRAM.partition("\n\n")
    (tmp_path / "adders.py").write_text(head)
    (tmp_path / "my_program.py").write_text(f"from adders import *\n{tail}")
    done = run_python(str(tmp_path / "my_program.py"))
    assert done.returncode == 0 and EXPECTED in done.stdout and done.stderr == ""


def test_a_module_by_name(tmp_path: Path) -> None:
    package = tmp_path / "tools"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PROGRAM)
    done = run_python("-m", "tools", cwd=tmp_path)
    assert done.returncode == 0 and EXPECTED in done.stdout and done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["-c"], ["-Ic"], ["-X", "utf8", "-c"]])
def test_a_command(flags: list[str], tmp_path: Path) -> None:
    program = PROGRAM
    if "-Ic" in flags:
        program = f"import sys; sys.path[:0] = {sys.path!r}\n" + PROGRAM
    done = run_python(*flags, program, cwd=tmp_path)
    assert done.returncode == 0 and EXPECTED in done.stdout and done.stderr == ""


def test_standard_input_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "program").write_text(PROGRAM)
    with (tmp_path / "program").open() as file:
        command = [sys.executable, "-"]
        done = subprocess.run(
            command, stdin=file, capture_output=True, text=True, env=environment(), timeout=40, check=False
        )
    assert done.returncode == 0 and EXPECTED in done.stdout and done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "env", "shown"),
    [("", {}, True), ("# " + 6000 * "x" + "\n", {}, False), ("", {"PYTHONUNBUFFERED": "1"}, False)],
    ids=["short", "long", "unbuffered"],
)
def test_a_remote_traceback_of_standard_input(more: str, env: dict[str, str], shown: bool) -> None:
    """It has source lines while C stdio still has the text: no other place has it when Python has compiled it."""
    done = run_python("-", input=f"{PROGRAM}{more}adder.fail.call().get(30)\n", env=environment(**env))
    assert done.returncode == 1 and EXPECTED in done.stdout
    frame = re.search(r'\n +File "<stdin>", line (\d+), in fail\n(.*)\n', done.stderr)
    assert frame is not None and PROGRAM.splitlines()[int(frame[1]) - 1] == f"        {FAILING}"
    assert (frame[2].strip() == FAILING) is shown


def test_standard_input_as_a_pipe(tmp_path: Path) -> None:
    done = run_python("-", input=PROGRAM, cwd=tmp_path)
    assert done.returncode == 0 and EXPECTED in done.stdout and done.stderr == ""


REDEFINES = """
from meshrt import Actor, endpoint, proc_mesh

class Point:
    x = 1

count = 0

def counted():
    global count
    count += 1
    return count

class Keeper(Actor):
    def __init__(self):
        self.kept = []

    @endpoint
    def keep(self, point):
        self.kept.append(point)
        return [each.x for each in self.kept], len({type(each) for each in self.kept})

    @endpoint
    def run(self, function):
        return function()

keeper = proc_mesh(n=1).spawn("keeper", Keeper)

def keep():
    print(*keeper.keep.call_one(Point()).get(20))

keep()
Point.x = 2
keep()
class Point:
    x = 3
keep()
print(*[keeper.run.call_one(counted).get(20) for _ in range(3)], count)
count = 7
print(keeper.run.call_one(counted).get(20))
"""


@pytest.mark.row("S8")
def test_what_the_script_defines_goes_along_as_it_is_at_the_time(tmp_path: Path) -> None:
    """A class that changes here changes on the ranks too, one that is defined again is another; globals are copied."""
    script = tmp_path / "redefines.py"
    script.write_text(REDEFINES)
    done = run_python(str(script), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["[1] 1", "[2, 2] 1", "[2, 2, 3] 2", "1 1 1 0", "8"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('a message')", 1),
        ("raise ZeroDivisionError", 1),
        ("adder.fail.call().get(30)", 1),
        ("adder.fail.call()", 1),
        ("mesh.stop()", 0),
        ("from meshrt import shutdown_context; shutdown_context()", 0),
        ("more = [proc_mesh(n=2) for _ in range(3)]", 0),
        ("import threading; threading.Thread(target=lambda: adder.add.call(1).get(30)).start()", 0),
        ("import os, signal; signal.raise_signal(signal.SIGINT)", -2),
    ],
)
def test_the_exit_code_is_the_programs_own(tmp_path: Path, end: str, code: int) -> None:
    script = tmp_path / "my_program.py"
    script.write_text(PROGRAM + end)
    done = run_python(str(script))
    assert done.returncode == code and EXPECTED in done.stdout
    assert ("Traceback" in done.stderr) is (code == 1 and "message" not in end and end != "adder.fail.call()")
    assert ("KeyError: 'from the program'" in done.stderr) is ("fail" in end)
    assert ("meshrt: interrupted at" in done.stderr) is (code == -2)


@pytest.mark.slow
@pytest.mark.parametrize(("known", "awaits"), [(False, False), (True, False), (True, True)])
def test_ctrl_c_says_what_was_waited_for(known: bool, awaits: bool, tmp_path: Path) -> None:
    """And where the ranks stand, once that is known here."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import asyncio, os, signal, threading, time\nfrom meshrt import *\n"
        "class Sleeper(Actor):\n    @endpoint\n    def sleep(self):\n"
        "        if current_rank().rank != 1: time.sleep(100)\n"
        "mesh = proc_mesh(n=3)\n"
        "call = mesh.spawn('sleeper', Sleeper).get().sleep.call()\n"
        "from meshrt.mesh.program import start_root\nservices = start_root().services\n"
        "def blocked():\n"
        "    table = services.tables.get('inspect.activity')\n"
        "    states = [table and table.state(mesh.mesh_id, rank, 'sleeper') for rank in (0, 2)]\n"
        "    return all(state and state.word == 'blocked' for state in states)\n"
        "def called():\n"
        "    return any(wait.endpoint == 'sleep' for wait in services.script_waits())\n"
        "def interrupt():\n"
        f"    while not {'blocked' if known else 'called'}(): pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        + (
            "async def wait():\n    async with mesh: await call\nasyncio.run(wait())"
            if awaits
            else "with mesh: call.get()"
        )
    )
    done = run_python(str(script))
    assert done.returncode == -signal.SIGINT
    first, second, *kept = done.stderr.splitlines()
    assert first.startswith("meshrt: interrupted at ") and first.endswith(", in <module>")
    where = "`python -m meshrt.debug -c where` shows where ranks are, while they run"
    if known:
        where = rf"ranks 0,2 blocked at {script}:6, in sleep, for \d+ s"
    told = re.fullmatch(r"meshrt: sleeper\.sleep\(\): no answer from [23] of 3 \(ranks 0[,-]2.*?\)(?:; (.*))?", second)
    assert told is not None
    # Of a call that has just been sent, nobody says that it hangs; on a busy machine it is a second old.
    hangs = known or told[1] is None
    assert told[1] is None if hangs and not known else re.fullmatch(where, told[1])
    assert len(kept) == hangs
    if known:
        match = re.fullmatch(r"meshrt: where all ranks were: meshrt (postmortem [0-9a-f]{8})", kept[0])
        assert match is not None
        report = run_python("-m", "meshrt", *match[1].split()).stdout
        assert "meshrt: INTERRUPTED while waiting for 2 of 3 ranks of mesh1 (n=3)" in report
        assert (
            "had not answered sleeper.sleep() after" in report
            and "s, when you interrupted" in report
            and f"called at {script}:" in report
        )
        assert re.search(r"2/2 .*sleep  .*waits\.py:6", report)


@pytest.mark.row("C4")
def test_ctrl_c_that_ends_no_poll(tmp_path: Path) -> None:
    """The signal comes to another thread: what waits in the kernel is not told."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import os, signal, threading, time\nfrom meshrt import *\n"
        "class Sleeper(Actor):\n    @endpoint\n    def sleep(self): time.sleep(100)\n"
        "mesh = proc_mesh(n=1)\n"
        "call = mesh.spawn('sleeper', Sleeper).get().sleep.call()\n"
        "def interrupt():\n"  # the handler of SIGTERM is put in place during the wait, and ends a poll
        "    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL: time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "try: call.get()\n"
        "finally: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})"
    )
    done = run_python(str(script))
    assert done.returncode == -signal.SIGINT and "meshrt: interrupted at" in done.stderr


def test_ctrl_c_says_which_port_a_message_was_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "receives.py"
    script.write_text(
        "import os, signal, threading\nfrom meshrt import *\n"
        "port, receiver = Channel[int].open()\n"
        "port.send(1)\nreceiver.recv().get()\n"
        "from meshrt.mesh.program import start_root\nservices = start_root().services\n"
        "def interrupt():\n"
        "    while not services.script_waits(): pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "receiver.recv().get()"
    )
    done = run_python(str(script))
    assert done.returncode == -signal.SIGINT
    assert (
        f"meshrt: port.recv() of the channel opened at {script}:3: no message; 1 message was received from this "
        "process, " in done.stderr
    )


def test_ctrl_c_says_who_does_not_take_a_call(tmp_path: Path) -> None:
    script = tmp_path / "sends.py"
    script.write_text(
        "import os, signal, sys, threading, time\nfrom meshrt import *\n"
        "class Taker(Actor):\n    @endpoint\n    def pid(self): return os.getpid()\n"
        "    @endpoint\n    def take(self, data): pass\n"
        "takers = proc_mesh(n=2).spawn('taker', Taker)\n"
        "pid = takers.slice(n=1).pid.call_one().get()\n"
        "os.kill(pid, signal.SIGSTOP)\n"
        "def waits():\n"
        "    names, frame = set(), sys._current_frames()[threading.main_thread().ident]\n"
        "    while frame is not None:\n"
        "        names.add(frame.f_code.co_name)\n"
        "        frame = frame.f_back\n"
        "    return {'settle', '_wait'} <= names\n"
        "def interrupt():\n"
        "    while not waits(): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "takers.slice(n=1).take.broadcast(bytes(4 << 20))"
    )
    done = run_python(str(script))
    assert done.returncode == -signal.SIGINT
    said = re.search(
        r"interrupted at .*\nmeshrt: (taker\.take\(\): messages not yet read by 1 of 1 \(rank 1 \(n=1\) on .*)",
        done.stderr,
    )
    assert said is not None, done.stderr


def test_an_error_of_a_rank_shows_the_programs_own_line(tmp_path: Path) -> None:
    script = tmp_path / "my_program.py"
    script.write_text(PROGRAM + "adder.fail.call().get(30)")
    done = run_python(str(script))
    assert "adder.fail() raised on rank" in done.stderr and "KeyError: 'from the program'" in done.stderr
    assert 'raise KeyError("from the program")' in done.stderr and f'File "{script}", line 12, in fail' in done.stderr


def test_what_was_broadcast_before_the_end_is_still_served(tmp_path: Path) -> None:
    script = tmp_path / "my_program.py"
    script.write_text(
        "from pathlib import Path\nfrom meshrt import Actor, endpoint, proc_mesh\n"
        "class Toucher(Actor):\n    @endpoint\n    def touch(self, path): Path(path).touch()\n"
        f"proc_mesh(n=1).spawn('toucher', Toucher).touch.broadcast({str(tmp_path / 'touched')!r})\n"
    )
    assert run_python(str(script)).returncode == 0
    assert (tmp_path / "touched").exists()


def test_ranks_that_start_slowly_are_waited_for_at_the_end(tmp_path: Path) -> None:
    script = tmp_path / "my_program.py"
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(1.5)\n")
    script.write_text(
        "from pathlib import Path\nfrom meshrt import Actor, endpoint, proc_mesh\n"
        "class Toucher(Actor):\n    @endpoint\n    def touch(self, path): Path(path).touch()\n"
        "mesh = proc_mesh(n=1, preload=['slow_module'])\n"
        f"mesh.spawn('toucher', Toucher).touch.broadcast({str(tmp_path / 'touched')!r})\n"
    )
    assert run_python(str(script)).returncode == 0
    assert (tmp_path / "touched").exists()


def test_output_of_ranks_is_complete_when_the_program_has_ended(tmp_path: Path) -> None:
    script = tmp_path / "my_program.py"
    script.write_text(
        "from meshrt import Actor, endpoint, proc_mesh\n"
        "class Talker(Actor):\n    @endpoint\n    def talk(self):\n        for n in range(300): print('line', n)\n"
        "proc_mesh(n=2, logs='fold=off').spawn('talker', Talker).talk.call().get(30)\n"
    )
    done = run_python(str(script))
    assert done.returncode == 0
    for rank in range(2):
        assert [line for line in done.stdout.splitlines() if f"n={rank}]" in line] == [
            f"[talker n={rank}] line {number}" for number in range(300)
        ]


def test_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    # Python 3.13.0 itself cannot import socket in such a directory; everything else happens there.
    done = run_python("-c", f"import os, socket; os.rmdir(os.getcwd())\n{PROGRAM}", cwd=tmp_path / "gone")
    assert done.returncode == 0 and EXPECTED in done.stdout


def test_without_standard_streams(tmp_path: Path) -> None:
    """As under a service manager that gives none: closed descriptors must not be taken for something else."""
    written = PROGRAM.replace('print("VALUES", ', "open('answer', 'w').write('VALUES ' + repr(").rstrip() + ")\n"
    (tmp_path / "my_program.py").write_text(written)
    command = f"exec {sys.executable} my_program.py <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment(), timeout=40, check=False)
    assert done.returncode == 0
    assert (tmp_path / "answer").read_text() == EXPECTED

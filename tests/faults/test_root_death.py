"""The script is killed, stopped, ends by itself, by an exception, with its terminal: nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import meshrt
from meshrt import LocalEngine
from meshrt.engine.local import LocalAgent
from meshrt.mesh import engine
from meshrt.transport import directories, dirlock
from meshrt.wire.control import control_frame
from meshrt.wire.tree import Hello
from tests.faults.watch import LONG, Program, agents, all_gone, descendants, is_alive, runtime_directories
from tests.support.footprint import marked_processes
from tests.support.pausing import pause, paused
from tests.support.waiting import wait_until

#: Seconds for the end of everything.
GONE = 2.0

MESHES = """
    engine = LocalEngine(int(sys.argv[1]))
    mesh = proc_mesh(hosts=2, gpus=2, engine=engine)
    victims = mesh.spawn("victim", Victim).get(20)
    daemons = [victims.slice(hosts=0, gpus=0).daemon.call_one(kind).get(20) for kind in ("exec", "fork", "double")]
    daemons.append(victims.slice(hosts=1, gpus=1).daemon.call_one("exec").get(20))
    child = victims.slice(hosts=0, gpus=1).fork_child.call_one().get(20)
    tell(ready=[*victims.pid.call().get(20).values(), child, *daemons])
"""


@pytest.fixture(autouse=True)
def no_directories_yet() -> None:
    """What a test before has left is its failure, not that of this one."""
    for directory in runtime_directories():
        shutil.rmtree(directory)


@pytest.mark.parametrize("when", ["before it says hello", "then", "when it has removed its directory"])
def test_the_script_ends_before_its_agent_has_begun(when: str) -> None:
    """The agent removes the directory all the same, and has nothing to say."""
    run_id = "cafe0123"
    path = directories.create_runtime(run_id)
    dirlock.end(path)
    with subprocess.Popen(["true"]) as dead:
        dead.wait(LONG)
    program = SimpleNamespace(run_id=run_id, directory=bytes(path), new_mark=lambda: f"{run_id}.1")
    (placed,) = LocalEngine().place(cast(engine.Program, program), engine.Request(None, 1), [])
    assert isinstance(placed, LocalAgent)
    with socket.socket(fileno=placed.link.sock.detach()) as link, placed._process as agent:
        link.setblocking(True)
        root_pid = dead.pid
        if when == "when it has removed its directory":
            root_pid = os.getpid()  # its process is still there
            shutil.rmtree(path)
        if when != "before it says hello":
            hello = Hello(
                secret=bytes(32),
                run_id=run_id,
                directory=bytes(path),
                run_directory=bytes(path),
                sys_path=list(map(os.fsencode, sys.path)),
                argv=[""],
                host="here",
                root_pid=root_pid,
                store_limit=0,
                families=1 << 33,
                logs_limit=1 << 30,
            )
            link.sendall(control_frame(hello))
        link.shutdown(socket.SHUT_WR)
        _, errors = agent.communicate(timeout=LONG)
    assert (agent.returncode, errors, path.exists()) == (0, b"", False)


PHASES = {
    "idle": "threading.Event().wait()",
    "in a call": "victims.wait_for.call('/nowhere/gate').get()",
    "printing": "victims.apply.broadcast(exec, 'while True: print(1)'); threading.Event().wait()",
    "stopping": "victims.wait_for.broadcast('/nowhere/gate'); tell(stopping=1); mesh.stop(60)",
}


@pytest.mark.slow
@pytest.mark.row("C1")
@pytest.mark.parametrize("count", ["1", "2"], ids=["one-agent", "two-agents"])
@pytest.mark.parametrize("phase", PHASES)
def test_kill_9(phase: str, count: str, tmp_path: Path) -> None:
    """Every rank, everything that a rank started and every agent ends; the runtime directory goes."""
    with Program(MESHES + f"    {PHASES[phase]}\n", tmp_path, count) as program:
        ranks = program.told("ready")
        if phase == "stopping":
            program.told("stopping")
        hosts = agents(program.pid)
        assert len(hosts) == int(count)
        everything = [*ranks, *hosts, *descendants(program.pid)]
        program.signal(signal.SIGKILL)
        program.ends()
        all_gone(everything, GONE)
        wait_until(lambda: not marked_processes(), GONE)
        wait_until(lambda: not runtime_directories(), GONE)


@pytest.mark.slow
@pytest.mark.row("C1")
@pytest.mark.parametrize("count", ["1", "2"], ids=["one-agent", "two-agents"])
def test_kill_9_while_the_ranks_start(count: str, tmp_path: Path) -> None:
    script = """
        tell(started=1)
        for _ in range(10):
            proc_mesh(n=16, engine=LocalEngine(int(sys.argv[1])))
        threading.Event().wait()
    """
    with Program(script, tmp_path, count) as program:
        program.told("started")
        wait_until(lambda: len(descendants(program.pid)) > 4, LONG)
        program.signal(signal.SIGKILL)
        program.ends()
        wait_until(lambda: not marked_processes(), GONE)
    assert_reclaimed()


def assert_reclaimed() -> None:
    """What a program leaves is gone at the latest when the next one starts."""
    meshrt.proc_mesh(n=1).get(LONG)
    assert len(runtime_directories()) == 1


@pytest.mark.row("C1")
def test_the_whole_group_is_killed(tmp_path: Path) -> None:
    """Root and agents at once: no one is left to clean up but the kernel, and the next start.

    One rank is stopped, and another one busy in C: no thread of theirs sees the end of a connection.
    """
    busy = f"victims.slice(hosts=1, gpus=0).hold_gil.broadcast(600, {str(tmp_path / 'inside')!r})"
    script = MESHES.replace('("exec", "fork", "double")', "()") + f"    {busy}\n    threading.Event().wait()\n"
    with Program(script, tmp_path, "2") as program:
        ranks = program.told("ready")[:4]
        hosts = agents(program.pid)
        wait_until((tmp_path / "inside").exists, LONG)
        pause(ranks[1])
        # The agents first: the end of the root continues those that are stopped.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (*hosts, program.pid):
                os.kill(pid, number)
        program.ends()
        all_gone([*ranks, *hosts], GONE)
        assert len(runtime_directories()) == 1
        assert_reclaimed()
        for pid in marked_processes():  # what ranks had detached: not promised when nobody is left
            if pid not in descendants(os.getpid()):
                os.kill(pid, signal.SIGKILL)


def test_a_script_that_becomes_another_program(tmp_path: Path) -> None:
    """Its process lives on, but nothing of it knows of a mesh."""
    become = "os.execv(sys.executable, [sys.executable, '-c', 'import signal; signal.pause()'])"
    with Program(MESHES + f"    {become}\n", tmp_path, "2") as program:
        everything = program.told("ready")
        all_gone(everything, LONG)
        wait_until(lambda: marked_processes() == [program.pid], LONG)
        wait_until(lambda: not runtime_directories(), LONG)
        assert program.process.poll() is None


@pytest.mark.row("C1")
def test_a_directory_without_facts_is_reclaimed() -> None:
    """Its program died before it could say who it is."""
    meshrt.proc_mesh(n=1).get(LONG)
    (own,) = runtime_directories()
    meshrt.shutdown_context()
    orphan = own.with_name("p-0123abcd")
    orphan.mkdir(mode=0o700)
    os.utime(orphan, (1e9, 1e9))
    assert_reclaimed()


@pytest.mark.slow
@pytest.mark.row("C6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_that_ends_the_script(number: signal.Signals, tmp_path: Path) -> None:
    """The exit status is that of the signal, as for any program."""
    with Program(MESHES + "    victims.wait_for.call('/nowhere/gate').get()\n", tmp_path, "2") as program:
        everything = [*program.told("ready"), *descendants(program.pid)]
        program.signal(number)
        assert program.ends() == -number
        all_gone(everything, GONE)
        wait_until(lambda: not runtime_directories(), GONE)


@pytest.mark.row("C6")
def test_a_signal_to_the_whole_session(tmp_path: Path) -> None:
    """A scheduler, or a closed terminal, signals everything that it can find."""
    with Program(MESHES + "    victims.wait_for.call('/nowhere/gate').get()\n", tmp_path, "1") as program:
        everything = [*program.told("ready"), *descendants(program.pid)]
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)
        program.signal(signal.SIGHUP)
        program.ends()
        all_gone(everything, GONE)
        wait_until(lambda: not runtime_directories(), GONE)


@pytest.mark.parametrize(
    "seconds",
    [
        # Longer than any time-out on the way: the handshake's and that for a lost link (2 s).
        pytest.param(3.0, marks=pytest.mark.row("C2")),
        pytest.param(70.0, marks=[pytest.mark.row("C2b"), pytest.mark.nightly]),
    ],
)
def test_a_stopped_script_loses_nothing(seconds: float, tmp_path: Path) -> None:
    """Nobody takes it for dead; after SIGCONT everything goes on."""
    script = """
    for index in range(10**6):
        assert victims.echo.call(index).get(20).values() == [index] * 4
        if os.path.exists("gate"):
            break
        if index % 100 == 0:
            tell(**{f"round{index // 100}": index})
    tell(pids=victims.pid.call().get(20).values())
    """
    with Program(MESHES + script.replace('"gate"', repr(str(tmp_path / "gate"))), tmp_path, "2") as program:
        ranks = program.told("ready")[:4]
        program.told("round1")
        with paused(program.pid):
            assert not wait_long(seconds, ranks)
        (tmp_path / "gate").touch()
        assert program.told("pids") == ranks
        assert program.ends() == 0


def wait_long(seconds: float, pids: list[int]) -> list[int]:
    """Return the first of ``pids`` that ends within ``seconds``."""
    from tests.support.waiting import holds_within

    holds_within(seconds, lambda: not all(map(is_alive, pids)))
    return [pid for pid in pids if not is_alive(pid)]


ENDS = {
    "end": ("", 0),
    "raise": ("raise LookupError('mine')", 1),
    "sys.exit": ("sys.exit(7)", 7),
    "sys.exit in with": ("\n    with mesh:\n        sys.exit(7)", 7),
    "raise in with": ("\n    with mesh:\n        raise LookupError('mine')", 1),
    "os._exit": ("os._exit(9)", 9),
    "a pending call": ("pending = victims.wait_for.call('/nowhere/gate')", 0),
    "sys.exit in a call": ("pending = victims.wait_for.call('/nowhere/gate'); sys.exit(3)", 3),
    "a thread that waits": (
        "threading.Thread(target=victims.wait_for.call('/nowhere/gate').exception, daemon=True).start()",
        0,
    ),
    "an unhandled death": ("victims.die.call('sigkill', (1,)).get()", 1),
    "a deleted mesh": ("del mesh, victims", 0),
    # Whoever still has a handle may use it: a mesh does not end because another one is no more.
    "a handle less": (
        "del mesh; import gc; gc.collect(); assert victims.echo.call(1).get(20).values() == [1, 1, 1, 1]",
        0,
    ),
    "made and deleted in threads": (
        "found = []\n"
        "    def make(): found.append(proc_mesh(n=2).spawn('more', Victim).get(20))\n"
        "    def delete(): global mesh; del mesh\n"
        "    for work in (make, delete):\n"
        "        thread = threading.Thread(target=work); thread.start(); thread.join()\n"
        "    proc_mesh(n=1).spawn('later', Victim).get(20)\n"  # what would end with the thread has ended by now
        "    assert found.pop().echo.call(1).get(20).values() == [1, 1]",
        0,
    ),
    "a cycle": ("mesh.me = mesh; keep = [mesh]; keep.append(keep); del mesh", 0),
}

CUT_OFF = "meshrt: unfinished work of mesh1 was terminated 0.5 s after the end of the program"


@pytest.mark.slow
@pytest.mark.row("C3", "C10")
@pytest.mark.parametrize("end", ENDS)
def test_how_a_script_ends(end: str, tmp_path: Path) -> None:
    """Its exit code is its own, and nothing stays; the mesh is at module level and was never stopped."""
    text, code = ENDS[end]
    with Program(MESHES + f"    {text}\n", tmp_path, "2") as program:
        everything = program.told("ready")
        assert program.ends() == code
        all_gone(everything, GONE)
        wait_until(lambda: not marked_processes(), GONE)
        wait_until(lambda: not runtime_directories(), GONE)
        lines = program.output.splitlines()
    if "wait_for" in text and code == 0:
        assert [line for line in lines if line.startswith("meshrt: ")] == [CUT_OFF]
        assert any("victim.wait_for() on ranks 0-3" in line for line in lines)
    elif code == 0:
        assert lines == []
    elif code == 1:
        assert lines[0].startswith("Traceback") or lines[0].startswith("meshrt: "), lines


LATE = {
    "atexit before": "import atexit\nfrom meshrt import *\natexit.register(lambda: late())\nstart()",
    "atexit after": "import atexit\nstart()\natexit.register(lambda: late())",
    "del": "start()\nclass Late:\n    def __del__(self): late()\nkeep = Late()",
    "thread": (
        "start()\ndef work():\n    threading.main_thread().join()\n    late()\nthreading.Thread(target=work).start()"
    ),
}


@pytest.mark.slow
@pytest.mark.row("C9")
@pytest.mark.parametrize("when", LATE)
def test_a_mesh_that_is_made_too_late(when: str, tmp_path: Path) -> None:
    """It works as long as exit handlers may still end it; else ShutdownError says why not."""
    script = """
def late():
    try:
        mesh = proc_mesh(n=2)
        tell(late=mesh.spawn("victim", Victim).echo.call(5).get(20).values())
    except BaseException as error:
        tell(late=type(error).__name__)
def start():
    proc_mesh(n=2).spawn("victim", Victim).get(20)
"""
    with Program(script + LATE[when] + "\n", tmp_path) as program:
        expected = {"atexit before": "ShutdownError", "del": "ShutdownError"}.get(when, [5, 5])
        assert program.told("late") == expected
        assert program.ends() == 0
        wait_until(lambda: not marked_processes(), GONE)
        wait_until(lambda: not runtime_directories(), GONE)
        assert program.output == ""

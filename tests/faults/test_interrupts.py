"""Ctrl-C, from a real terminal, at every moment; and the terminal itself goes away."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.transport.kernel import kernel_state
from tests.faults.watch import LONG, Program, all_gone, descendants, runtime_directories
from tests.support.footprint import marked_processes
from tests.support.programs import environment
from tests.support.waiting import wait_until

GONE = 2.0

HEAD = """
import json, os, sys, threading, time
from meshrt import *
from tests.faults.actors import *
def tell(**facts):
    print("@" + json.dumps(facts), flush=True)
def here():
    return sys._getframe(1).f_code.co_name
mesh = proc_mesh(hosts=2, gpus=2, engine=LocalEngine(2))
victims = mesh.spawn("victim", Victim).get(20)
pids = victims.pid.call().get(20).values()
"""


class Session:
    """A script on a terminal of its own; `press` types, `told` waits for what it tells.

    Args:
        as_job: There is a process between terminal and script, as a shell is: only such a script can be stopped there.
    """

    def __init__(self, script: str, folder: Path, *, as_job: bool = False) -> None:
        path = folder / "script.py"
        path.write_text(HEAD + textwrap.dedent(script))
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            if as_job:
                _run_job()
            os.execve(sys.executable, [sys.executable, str(path)], environment())
        os.set_blocking(self._terminal, False)
        self.text = ""
        self._status: int | None = None

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self._terminal, 1 << 16):
                self.text += data.decode(errors="replace")
        return self.text

    def told(self, name: str) -> Any:
        """Wait for a fact and return it."""

        def facts() -> dict[str, Any]:
            lines = self.read().replace("^C", "").replace("^Z", "").split("\n")[:-1]
            found: dict[str, Any] = {}
            for line in lines:
                if line.startswith("@"):
                    found.update(json.loads(line[1:]))
            return found

        wait_until(lambda: name in facts() or self.ended(), LONG, f"{name!r} in {self.text!r}")
        assert name in facts(), self.text
        return facts()[name]

    def ended(self) -> bool:
        self.read()
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is not None

    def ends(self) -> int:
        """Wait for the end of the script and return its exit code."""
        wait_until(self.ended, LONG, f"the end; it has printed {self.text!r}")
        assert self._status is not None
        return self._status

    def hang_up(self) -> None:
        """Close the terminal."""
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def close(self) -> None:
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            self.ends()
        self.hang_up()


def _run_job() -> None:
    """Return in a child that has the terminal; wait for its end in this process."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # who has not the terminal yet may hand it on
    job = os.fork()
    if job:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]) & 0xFF)
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    sessions: list[Session] = []

    def make(script: str, **options: bool) -> Session:
        sessions.append(Session(script, tmp_path, **options))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


WAITS = {
    "get": "victims.wait_for.call('/nowhere/gate').get()",
    "get with a time-out": "victims.wait_for.call('/nowhere/gate').get(100)",
    "initialized": "mesh.spawn('born', BornDead, 'error', (99,), '/nowhere/gate').get()",
    "stream": "[f.get() for f in victims.wait_for.stream('/nowhere/gate')]",
    "asyncio": "__import__('asyncio').run(main_task())",
    "follower": "busy.start(); victims.wait_for.call('/nowhere/gate').get()",
}


@pytest.mark.slow
@pytest.mark.row("C4")
@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_in_a_wait(wait: str, start: Any) -> None:
    """KeyboardInterrupt in the user's own frame; the ranks do not notice, and the mesh is usable."""
    session = start(f"""
        async def main_task():
            await victims.wait_for.call('/nowhere/gate')
        other = mesh.spawn("other", Victim)
        busy = threading.Thread(target=lambda: victims.wait_for.call('/nowhere/gate').exception(), daemon=True)
        def user_code():
            tell(ready=pids)  # here: on a loaded machine Ctrl-C may come before the wait
            {WAITS[wait]}
        try:
            user_code()
        except KeyboardInterrupt as error:
            frames = []
            trace = error.__traceback__
            while trace:
                frames.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            tell(frames=frames)
        tell(after=other.pid.call().get(20).values())
        mesh.stop(0)
        tell(stopped=1)
    """)
    pids = session.told("ready")
    wait_until(lambda: sleeping(session.pid), LONG)
    session.press("\x03")
    assert "user_code" in session.told("frames")
    assert session.told("after") == pids
    assert session.told("stopped")
    assert session.ends() == 0
    all_gone(pids, GONE)


def sleeping(pid: int) -> bool:
    """Whether the main thread of a process waits in the kernel for something other than a moment's I/O."""
    waits = ("ep_poll", "do_epoll_wait", "futex_wait_queue", "futex_do_wait")
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text() in waits
    return True


@pytest.mark.slow
@pytest.mark.row("C4")
def test_ctrl_c_a_hundred_times_during_calls(start: Any) -> None:
    """No call is lost and nothing hangs, also not in the threads that wait beside."""
    session = start("""
        hits = calls = 0
        def beside():
            while hits < 100:
                assert victims.echo.call("beside").get(20).values() == ["beside"] * 4
            tell(beside=1)
        thread = threading.Thread(target=beside)
        thread.start()
        while hits < 100:
            try:
                print("?", flush=True)
                while True:
                    calls += 1
                    assert victims.echo.call(calls).get(20).values() == [calls] * 4
            except KeyboardInterrupt:
                hits += 1
        tell(after=victims.pid.call().get(20).values())
    """)
    for hit in range(100):
        wait_until(lambda: session.read().count("?") > hit, LONG, f"hit {hit}")  # noqa: B023 - used at once
        session.press("\x03")
    assert len(session.told("after")) == 4 and session.told("beside")
    assert session.ends() == 0


_no_opcodes = pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="Python 3.12 gives no opcode events to a frame that asks when it is called"
)


PRESS = """
    def press_at_instruction(count, watched):
        def trace(frame, event, argument):
            nonlocal count
            if not watched(frame.f_code.co_filename):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                count -= 1
                if count == 0:
                    signal.raise_signal(signal.SIGINT)
            return trace
        sys.settrace(trace)
        return lambda: count <= 0

    def press_in(count, watched, work):
        # Returns what the work has returned, if it got so far, and whether it has come to that instruction.
        pressed, done = press_at_instruction(count, watched), None
        try:
            done = work()
            sys.settrace(None)
            while pressed():  # it was in a finalizer, and comes a little later
                time.sleep(1)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return done, pressed()
"""


@_no_opcodes
def test_ctrl_c_at_the_instructions_of_a_put(tmp_path: Path) -> None:
    """What it has written is in use by nobody then."""
    script = """
        import numpy
        from meshrt import put
        from meshrt.mesh.program import start_root
        from tests.support.waiting import holds_within
        proc_mesh(n=1).initialized.get(20)
        array = numpy.ones(1 << 16)
        put(array)
        store, folder = start_root().runtime.store, os.path.join("meshrt", "store", "")
        ignored = []
        sys.unraisablehook = lambda what: ignored.append(repr(what.exc_value))
        def press_at(count):
            return press_in(count, lambda file: folder in file, lambda: put(array))[1]
        position = 7
        while press_at(position):
            position += 7
        def free():
            return not store.statistics()["taken"]
        tell(positions=position, free=holds_within(20, free), ignored=ignored)
    """
    with Program(textwrap.dedent(PRESS) + textwrap.dedent(script), tmp_path) as program:
        assert program.told("positions", 100) > 300
        assert program.told("free") and not program.told("ignored")
        assert program.ends() == 0


@pytest.mark.slow
@_no_opcodes
def test_ctrl_c_at_the_instructions_of_a_call_that_lends(tmp_path: Path) -> None:
    """What its receivers were given, and were never sent, is in use by nobody then."""
    script = """
        import numpy
        from meshrt import put
        from meshrt.mesh.program import start_root
        from tests.support.waiting import holds_within
        victims = proc_mesh(n=2).spawn("victim", Victim).get(20)
        array = numpy.ones(1 << 16)
        reference = put(array)
        store, folder = start_root().runtime.store, os.path.join("meshrt", "store", "")
        def press_at(count):
            watched = lambda file: folder in file or file.endswith("call.py")
            sent, reached = press_in(count, watched, lambda: victims.count.call(array, reference))
            if sent is not None:
                sent.get(20)
            return reached
        press_at(10 ** 9)
        position = sys.version_info.minor % 5 + 1
        while press_at(position):
            position += 5
        del reference
        def free():
            return not store.statistics()["taken"]
        tell(positions=position, free=holds_within(20, free), after=victims.pid.call().get(20).values())
    """
    with Program(textwrap.dedent(PRESS) + textwrap.dedent(script), tmp_path) as program:
        assert program.told("positions", 100) > 300
        assert program.told("free")
        assert len(program.told("after")) == 2 and program.ends() == 0


@pytest.mark.slow
@_no_opcodes
def test_ctrl_c_at_every_instruction_of_a_call(tmp_path: Path) -> None:
    """At each byte code that a call runs in the transport, one after the other: nothing is left locked or half done."""
    script = """
        victims = proc_mesh(n=2).spawn("victim", Victim).get(20)
        files = ("driver.py", "reading.py", "linktable.py", "queues.py", "waiting.py", "waits.py", "pending.py")
        files += ("outlink.py", "link.py", "interrupts.py", "call.py", "future.py")
        def press_at(count):
            pressed = press_at_instruction(count, lambda file: os.path.basename(file) in files)
            try:
                value = victims.echo.call(1).get(20).values()
                assert value == [1, 1]
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            return pressed()
        def beside():
            values.append(victims.echo.call(position).get(5).values())
        position = 0
        step = int(sys.argv[1])
        while True:
            position += step
            try:
                reached = press_at(position)
            except KeyboardInterrupt:
                reached = True
            values = []
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join(10)
            assert values == [[position] * 2], (position, values)
            assert victims.echo.call(position).get(5).values() == [position] * 2
            if not reached:
                break
        tell(positions=position)
    """
    with Program(textwrap.dedent(PRESS) + textwrap.dedent(script), tmp_path, "1") as program:
        assert program.told("positions", 100) > 300
        assert program.ends() == 0


@pytest.mark.row("C2b")
def test_ctrl_z_stops_the_script_and_nothing_else(start: Any) -> None:
    """Its ranks go on with what they have to do, and the script goes on with them."""
    session = start(
        """
        import tempfile
        folder = tempfile.mkdtemp()
        victims.wait_for.broadcast(folder + "/gate", folder + "/inside")
        tell(ready=pids, script=os.getpid(), folder=folder)
        last = victims.pid.call()
        assert last.get(60).values() == pids
        tell(after=sorted(os.listdir(folder)))
        """,
        as_job=True,
    )
    ranks, script, folder = session.told("ready"), session.told("script"), Path(session.told("folder"))
    try:
        wait_until(lambda: len(list(folder.iterdir())) == 4, LONG)
        everybody = descendants(script)
        session.press("\x1a")
        wait_until(lambda: kernel_state(script) == "T", LONG, "the script is stopped")
        assert len(everybody) == 6 and set(ranks) < set(everybody)
        assert not any(kernel_state(pid) in ("T", "", "Z") for pid in everybody)
        (folder / "gate").touch()
        os.kill(script, signal.SIGCONT)
        assert len(session.told("after")) == 5
        assert session.ends() == 0
    finally:
        shutil.rmtree(folder)
    all_gone(everybody, GONE)


@pytest.mark.row("C4")
def test_ctrl_c_without_a_handler_ends_the_script(start: Any) -> None:
    session = start("tell(ready=pids)\nvictims.wait_for.call('/nowhere/gate').get()")
    pids = [*session.told("ready"), *descendants(session.pid)]
    wait_until(lambda: sleeping(session.pid), LONG)
    session.press("\x03")
    assert session.ends() == -signal.SIGINT
    assert session.text.count("meshrt: interrupted at") == 1 and "Traceback" not in session.text
    all_gone(pids, GONE)


@pytest.mark.slow
@pytest.mark.row("C5")
@pytest.mark.parametrize("presses", [1, 2, 3, 5])
@pytest.mark.parametrize("where", ["stop", "exit", "with"])
def test_ctrl_c_during_stop(where: str, presses: int, start: Any) -> None:
    """The ranks hang, the grace is long; Ctrl-C shortens it, and however often it comes, everything ends."""
    end = {
        "stop": "tell(ready=pids); mesh.stop(100)",
        "exit": "tell(ready=pids); shutdown_context(100); tell(after=1)",
        "with": "with mesh:\n    tell(ready=pids)",
    }[where]
    session = start("victims.wait_for.broadcast('/nowhere/gate')\n" + end)
    pids = [*session.told("ready"), *descendants(session.pid)]
    wait_until(lambda: sleeping(session.pid), LONG)
    for _ in range(presses):
        if session.ended():
            break
        session.press("\x03")
    status = session.ends()
    if (where, presses) == ("exit", 1):  # it has ended the waiting, and nothing else
        assert session.told("after") and status == 0
    all_gone(pids, GONE)
    wait_until(lambda: not marked_processes(), GONE)
    wait_until(lambda: not runtime_directories(), GONE)


@pytest.mark.row("C6")
@pytest.mark.parametrize("phase", ["idle", "in a call"])
def test_the_terminal_is_closed(phase: str, start: Any) -> None:
    wait = "threading.Event().wait()" if phase == "idle" else "victims.wait_for.call('/nowhere/gate').get()"
    session = start("tell(ready=pids)\n" + wait)
    pids = [*session.told("ready"), *descendants(session.pid)]
    session.hang_up()
    assert session.ends() == -signal.SIGHUP
    all_gone(pids, GONE)
    wait_until(lambda: not runtime_directories(), GONE)

"""The script forks, or uses multiprocessing, after it has made a mesh: the child has none."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from meshrt.transport import tools
from meshrt.wire.handshake import ROLE_TOOL, ClientHandshake
from tests.faults.watch import LONG, Program, runtime_directories
from tests.support.footprint import marked_processes
from tests.support.waiting import wait_until

HEAD = """
    mesh = proc_mesh(n=2)
    victims = mesh.spawn("victim", Victim).get(20)
    def error_of(function):
        try:
            return repr(function())
        except BaseException as error:
            return type(error).__name__
"""
FORK = """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        errors = [error_of(f) for f in (victims.pid.call, mesh.stop, lambda: mesh.spawn("more", Victim))]
        os.write(write_end, json.dumps(errors).encode())
        {end}
    os.close(write_end)
    tell(errors=json.loads(os.read(read_end, 10000)))
    tell(code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    tell(values=victims.echo.call(5).get(20).values())
"""
ENDS = {"sys.exit(3)": 3, "os._exit(4)": 4, "raise SystemExit": 0, "raise LookupError": 1}


@pytest.mark.slow
@pytest.mark.row("C8")
@pytest.mark.parametrize("end", ENDS)
def test_a_forked_child_has_no_mesh(end: str, tmp_path: Path) -> None:
    with Program(HEAD + FORK.format(end=end), tmp_path) as program:
        assert program.told("errors") == ["ForkedMeshError"] * 3
        assert program.told("code") == ENDS[end]
        assert program.told("values") == [5, 5]
        assert program.ends() == 0


@pytest.mark.row("C8")
def test_a_forked_child_waits_for_nothing(tmp_path: Path) -> None:
    """Neither for calls nor for messages that its parent waits for."""
    script = """
    import asyncio
    port, receiver = Channel[int].open()
    done, call, message = victims.pid.call(), victims.wait_for.call("/nowhere"), receiver.recv()
    async def waits(pending):
        return await pending
    uses = [
        done.get, call.get, call.done, call.cancel, message.get, receiver.recv, lambda: next(iter(receiver)),
        lambda: port.send(1), lambda: gather(done, call).get(), lambda: asyncio.run(waits(call)),
    ]
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, json.dumps([error_of(use) for use in uses]).encode())
        receiver.close()
        os._exit(0)
    os.close(write_end)
    tell(errors=json.loads(os.read(read_end, 10000)))
    tell(code=os.waitstatus_to_exitcode(os.wait()[1]))
    tell(sent=(port.send(2), message.get(20))[1], cancelled=call.cancel())
    """
    with Program(HEAD + script, tmp_path) as program:
        assert program.told("errors") == ["ForkedMeshError"] * 10
        assert program.told("code") == 0
        assert program.told("sent") == 2 and program.told("cancelled")
        assert program.ends() == 0


@pytest.mark.row("C8")
def test_a_forked_child_of_a_rank_has_none_of_its_meshes(tmp_path: Path) -> None:
    script = """
    def fork_and_stop():
        mesh = proc_mesh(n=1)
        pid = os.fork()
        if pid == 0:
            errors = {error_of(f) for f in (mesh.stop, lambda: mesh.spawn("more", Victim))}
            os._exit(7 if errors == {"ForkedMeshError"} else 1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    tell(code=victims.slice(n=0).apply.call_one(fork_and_stop).get(20))
    """
    with Program(HEAD + script, tmp_path) as program:
        assert program.told("code") == 7
        assert program.ends() == 0


def test_a_forked_child_makes_a_program_of_its_own(tmp_path: Path) -> None:
    script = """
    pid = os.fork()
    if pid == 0:
        own = proc_mesh(n=2).spawn("victim", Victim)
        assert own.echo.call(6).get(20).values() == [6, 6]
        sys.exit(0)
    tell(code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    tell(values=victims.echo.call(5).get(20).values())
    """
    with Program(HEAD + script, tmp_path) as program:
        assert program.told("code") == 0, program.output
        assert program.told("values") == [5, 5]
        assert program.ends() == 0


@pytest.mark.row("C8")
@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.PyDLL(None).fork()"], ids=["in-python", "in-c"])
def test_a_child_that_outlives_the_script_keeps_nothing_alive(fork: str, tmp_path: Path) -> None:
    """It has inherited the script's descriptors, and must not hide the end of the script from the agents.

    One that C code has forked keeps them open: Python is not asked to close anything.
    """
    script = f"""
    import ctypes
    pid = {fork}
    if pid == 0:
        time.sleep(600)
    tell(child=pid, ranks=victims.pid.call().get(20).values())
    os.kill(os.getpid(), signal.SIGKILL)
    """
    with Program(HEAD + script, tmp_path) as program:
        child = program.told("child")
        program.ends()
        wait_until(lambda: marked_processes() == [child], 2.0)
        wait_until(lambda: not runtime_directories(), 2.0)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: not marked_processes(), 2.0)


def test_a_child_that_outlives_the_script_keeps_no_terminal(tmp_path: Path) -> None:
    """Neither one that has connected, nor one that has proved nothing yet, nor a place to connect to."""
    script = """
    import stat
    def is_socket(number):
        try:
            return stat.S_ISSOCK(os.fstat(number).st_mode)
        except OSError:
            return False
    tell(ready=1)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.002)
    pid = os.fork()
    if pid == 0:
        tell(sockets=[number for number in range(3, 256) if is_socket(number)])
        time.sleep(600)
    tell(child=pid)
    """
    gate = tmp_path / "gate"
    with Program(HEAD + script, tmp_path, str(gate)) as program:
        program.told("ready")
        (found,) = tools.programs()
        closed = threading.Event()
        terminal = tools.connect(found, lambda _event, _body: None, closed.set)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(str(found.directory / "tools"))
            stranger.sendall(ClientHandshake(bytes(32), ROLE_TOOL, "tools").hello())
            assert stranger.recv(1 << 10)  # accepted
            gate.touch()
            child = program.told("child")
            assert program.told("sockets") == []
            program.signal(signal.SIGKILL)
            assert closed.wait(LONG)
            assert stranger.recv(1) == b""
        terminal.close()
        program.ends()
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: not marked_processes(), 2.0)


@pytest.mark.slow
@pytest.mark.row("C8")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_beside_a_mesh(method: str, tmp_path: Path) -> None:
    script = f"""
    import multiprocessing, operator
    if __name__ == "__main__":
        with multiprocessing.get_context({method!r}).Pool(2) as pool:
            tell(pool=pool.map(operator.neg, range(5)))
        tell(values=victims.echo.call(5).get(20).values())
    """
    head = HEAD if method == "fork" else "    if __name__ == '__main__':\n" + HEAD.replace("\n    ", "\n        ")
    with Program(head + script, tmp_path) as program:
        assert program.told("pool") == [0, -1, -2, -3, -4]
        assert program.told("values") == [5, 5]
        assert program.ends() == 0


def test_subprocesses_inherit_nothing(tmp_path: Path) -> None:
    """No descriptor and no secret of the program reaches what the script, or a rank, executes."""
    script = """
    def look():
        import subprocess, sys  # in a rank, too
        code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        return subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True).stdout
    os.set_inheritable(int(os.environ["TELL"]), False)
    tell(script=look(), rank=victims.slice(n=0).apply.call_one(look).get(20))
    """
    with Program(HEAD + script, tmp_path) as program:
        # Its three, and that of the listing itself.
        assert program.told("script").strip() == program.told("rank").strip() == "['0', '1', '2', '3']"
        assert program.ends() == 0

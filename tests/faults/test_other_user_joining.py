"""Another user of the machine, at the sockets that only some commands have: each asks the kernel who connects.

The directories that they are in are opened to everybody here; as they are made, nobody else gets so far.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from meshrt.cli import via
from meshrt.cli.tunnel import Shown
from meshrt.errors import MeshError, ProtocolError
from meshrt.host.code.asking import Asker, NoAnswerError
from meshrt.spmd.telling import Arrivals, Folder
from meshrt.store.dialling import dial
from meshrt.wire.control import control_frame
from meshrt.wire.handshake import ROLE_CODE, ClientHandshake, Identity
from meshrt.wire.meeting import AskToJoin
from tests.support.others import needs_root, run_as_nobody, running_as_nobody
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until
from tests.unit.host.code.test_relay import SECRET, Agent

SECONDS = 60.0
#: Connects, says something, and prints whether it is answered.
SAY = """
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.settimeout(float(sys.argv[3]))
    try:
        sock.connect(sys.argv[1])
        sock.sendall(bytes.fromhex(sys.argv[2]))
        print("answered" if sock.recv(4) else "closed")
    except OSError as error:
        print(type(error).__name__)
"""
#: Listens, and prints what each who comes says, up to the one who says "end".
LISTEN = """
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    print("listens", flush=True)
    said = b""
    while said != b"end":
        with server.accept()[0] as sock:
            said = sock.recv(100)
        print(said.decode("latin-1"), flush=True)
"""
REFUSED = ("closed", "ConnectionResetError", "BrokenPipeError")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that everybody reaches."""
    needs_root()
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def answers(path: Path, base: Path, said: bytes, seconds: float = 20.0) -> tuple[str, str]:
    """What another user is answered at a socket, and this one, who waits for so many seconds."""
    opened = [path, *(parent for parent in path.parents if parent.is_relative_to(base))]
    modes = [each.stat().st_mode for each in opened]
    assert [mode & 0o077 for mode in modes if mode & 0o077] == []
    for each in opened:
        each.chmod(0o777)
    try:
        theirs = run_as_nobody(SAY, str(path), said.hex(), "20").strip()
    finally:
        for each, mode in zip(opened, modes, strict=True):
            each.chmod(mode)
    return theirs, run_python("-c", SAY, str(path), said.hex(), str(seconds)).stdout.strip()


@contextmanager
def squatted(path: Path) -> Iterator[Callable[[], list[str]]]:
    """Another user listens at a path; what is yielded returns what each of those who came has said."""
    mode = path.parent.stat().st_mode
    path.parent.chmod(0o777)
    with running_as_nobody(LISTEN, str(path)) as squatter:
        assert squatter.stdout is not None and squatter.stdout.readline() == "listens\n"
        path.parent.chmod(mode)

        def heard() -> list[str]:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
                last.sendall(b"end")
            return squatter.communicate(timeout=SECONDS)[0].removesuffix("end\n").splitlines()

        yield heard


@pytest.mark.row("D5")
def test_where_processes_join(shared: Path) -> None:
    """Who asks there is given the secret of the program."""
    base = shared / "r"
    script = "import meshrt; meshrt.join('worker', mesh=2, rank=0, wait=60); print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(MESHRT_RUNTIME_DIR=str(base), MESHRT_RUNS=str(shared / "runs")),
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        (meeting,) = base.glob("meet-*")
        theirs, ours = answers(meeting, base, control_frame(AskToJoin(1)))
        assert theirs in REFUSED and ours == "answered"
        process.communicate(b"\n", timeout=SECONDS)
    wait_until(lambda: not [*base.glob("p-*")], SECONDS, "its program has ended")
    meeting.unlink(missing_ok=True)
    with squatted(meeting) as heard:
        env = {"MESHRT_RUNTIME_DIR": str(base), "MESHRT_RUNS": str(shared / "runs")}
        done = run_python("-c", script.replace("wait=60", "wait=2"), env=environment(**env), input="\n")
        assert set(heard()) == {""} and "the host agent belongs to another user" in done.stderr


@pytest.mark.row("D5")
def test_the_store_of_another_user_is_told_nothing(shared: Path) -> None:
    with squatted(shared / "store.1") as heard:
        with pytest.raises(ProtocolError, match="is served by another user"):
            dial(str(shared / "store.1"), SECRET, Identity(1, 1, os.getpid()), SECONDS, lambda: None)
        assert heard() == [""]


@pytest.mark.row("D5")
def test_an_agent_of_another_user_is_asked_for_no_code(shared: Path) -> None:
    with squatted(shared / "code.1") as heard:
        with pytest.raises(NoAnswerError, match="is served by another user"):
            Asker(str(shared / "code.1"), SECRET).ask("json")
        assert heard() == [""]


@pytest.mark.row("D5")
def test_where_ranks_ask_for_code(shared: Path) -> None:
    """The agent of another machine has the sources of the script's."""
    agent = Agent(shared)
    agent.start()
    try:
        theirs, ours = answers(Path(agent.path), shared / "none", ClientHandshake(SECRET, ROLE_CODE, "code").hello())
    finally:
        agent.end()
    assert theirs in REFUSED and ours == "answered"


@pytest.mark.row("D5")
def test_where_processes_tell_meshrt_attach_what_becomes_of_them(shared: Path) -> None:
    base, found = shared / "r", list[Arrivals]()
    base.mkdir(mode=0o700)
    with Folder(base) as folder:
        folder.expect(os.getpid())
        waiting = threading.Thread(target=lambda: found.append(folder.wait(SECONDS)))
        waiting.start()
        theirs, ours = answers(Path(folder.teller), base, b"failed: no\n", 0.1)  # nobody is answered there
        assert theirs in REFUSED and ours == "TimeoutError"
        assert waiting.is_alive() or len(found[0]) == 1
        folder._pending.clear()
        waiting.join(SECONDS)
    assert [list(each.values()) for each in found] == [[("failed", "no")]], "of this user alone"


@pytest.mark.row("D5")
def test_where_commands_find_the_programs_of_another_machine(shared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base, asked = shared / "r", list[int]()
    base.mkdir(mode=0o700)

    class Way:
        def tunnel(self) -> Any:
            asked.append(1)
            raise MeshError("there is no other machine")

    way: Any = Way()
    program = Shown("1", 1, ["a.py"], "/", 0.0, base, base, token="00")
    with via._served(base / "p-1", program, "ssh n1", way):
        theirs, ours = answers(base / "p-1" / "tools", base, b"hello")
        assert theirs in REFUSED and ours in REFUSED
        assert asked == [1], "the other machine was asked for this user alone"
    assert "there is no other machine" in capfd.readouterr().err

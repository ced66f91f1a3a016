"""Who holds no secret gets nothing: garbage, wrong proofs, silence, storms, other users. G9: N2, N4, N5, D5."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from meshrt import ActorMesh, proc_mesh
from meshrt.transport.process import current_runtime
from meshrt.wire.handshake import MAGIC, ROLE_DATA, ROLE_TOOL, ClientHandshake
from meshrt.wire.messages import control_frame
from tests.faults.actors import Victim
from tests.faults.watch import LONG, descendants
from tests.support.programs import ROOT, environment
from tests.support.waiting import wait_until

#: Seconds after which a silent connection is closed (2) on a loaded machine.
SILENT = 10.0
UNPROVED_MAX = 64


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def victims() -> ActorMesh[Victim]:
    return proc_mesh(n=2).spawn("victim", Victim).get(LONG)


def sockets() -> list[str]:
    """Return the paths at which something listens: the tools' first, then the ranks'."""
    directory = Path(current_runtime().directory)
    found = [str(path) for path in directory.iterdir() if stat.S_ISSOCK(path.stat().st_mode)]
    return sorted(found, key=lambda path: not path.endswith("/tools"))


def dial(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    sock.settimeout(SILENT)
    return sock


def closes(sock: socket.socket) -> bytes:
    """Return what comes until the other side closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := sock.recv(4096):
            data += more
    sock.close()
    return data


def hello(role: int = ROLE_DATA, endpoint: bytes = b"x", magic: bytes = MAGIC, size: int | None = None) -> bytes:
    return magic + bytes([role]) + bytes(32) + bytes([len(endpoint) if size is None else size]) + endpoint


def frame(kind: int, header: bytes, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(header) + len(payload), kind, len(header)) + header + payload


GARBAGE = {
    "random": bytes(range(256)) * 64,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "zeros": bytes(100_000),
    "wrong magic": hello(magic=b"meshrt\x00\x7f"),
    "unknown role": hello(role=77),
    "too long a name": hello(endpoint=b"n" * 255, size=255) + bytes(300),
    "hello and more": hello() + b"more than a hello",
    "a frame": frame(1, b"\x90", b""),
    "an enormous frame": struct.pack(">IBI", 0xFFFFFFFF, 1, 5) + b"12345",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused_at_once(what: str, victims: ActorMesh[Victim]) -> None:
    """N4, N5: at the ranks and at the tools' socket; the mesh does not notice."""
    assert len(sockets()) == 3
    for path in sockets():
        sock = dial(path)
        with contextlib.suppress(ConnectionError):
            sock.sendall(GARBAGE[what])
        assert closes(sock) == b""
    assert victims.echo.call(1).get(LONG).values() == [1, 1]


@pytest.mark.parametrize("role", [ROLE_DATA, ROLE_TOOL])
def test_a_wrong_secret_is_refused(role: int, victims: ActorMesh[Victim], tmp_path: Path) -> None:
    """It gets the server's proof, which tells nothing; what it sends with its own is never looked at."""
    payload = pickle.dumps((None, Touch(tmp_path / "unpickled"), (), {}))
    for path in sockets():
        name = path.rpartition("/")[2]
        if (role == ROLE_TOOL) != (name == "tools"):
            continue
        endpoint = "tools" if name == "tools" else name.replace(".", "/") + "/victim"
        sock = dial(path)
        sock.sendall(hello(role, endpoint.encode()))
        assert len(sock.recv(4096)) == 64
        with contextlib.suppress(ConnectionError):
            sock.sendall(bytes(32) + frame(2, b"\x94\x01\xa1x\xc4\x00\x91\x05", payload) * 3)
        assert closes(sock) == b""
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    assert not (tmp_path / "unpickled").exists()


def test_a_proof_for_one_rank_opens_no_other(victims: ActorMesh[Victim]) -> None:
    """The name that was dialled is part of the proof, and a rank answers to its own name only."""
    _, first, second = sockets()
    name = first.rpartition("/")[2].replace(".", "/") + "/victim"
    sock = dial(second)
    sock.sendall(ClientHandshake(current_runtime().secret, ROLE_DATA, name).hello())
    assert len(closes(sock)) <= 64
    assert victims.echo.call(1).get(LONG).values() == [1, 1]


def prove(path: str, secret: bytes, role: int, endpoint: str) -> socket.socket:
    sock = dial(path)
    handshake = ClientHandshake(secret, role, endpoint)
    sock.sendall(handshake.hello())
    while not handshake.done:
        sock.sendall(handshake.receive_data(sock.recv(4096)))
    return sock


def tools_token() -> bytes:
    return bytes.fromhex((Path(current_runtime().directory) / "tools.token").read_text())


def test_a_terminal_reaches_no_rank_and_no_pickle(victims: ActorMesh[Victim], tmp_path: Path) -> None:
    """The token of terminals opens the tools' socket only, and nothing that comes there is unpickled."""
    tools, rank, _ = sockets()
    payload = pickle.dumps(Touch(tmp_path / "unpickled"))
    name = rank.rpartition("/")[2].replace(".", "/") + "/victim"
    for role in (ROLE_DATA, ROLE_TOOL):
        sock = dial(rank)
        handshake = ClientHandshake(tools_token(), role, name)
        sock.sendall(handshake.hello())
        data = sock.recv(4096)
        if data:
            with pytest.raises(Exception, match="secret"):
                handshake.receive_data(data)
        sock.close()
    bodies: list[bytes] = [
        frame(1, b"\x95\x01\xa4echo\xc4\x00\x91\x05\x00", payload),
        frame(2, b"\x94\x01\xa1x\xc4\x00\x91\x05", payload),
        frame(16, b"\xc0", payload),
        frame(16, b"\x92\xa1m\x00", payload),
        control_frame({"t": "stop", "drain": False}),
        control_frame({"t": "op"}),
        control_frame({"t": "op", "id": 1, "op": "mesh.spawn", "body": {}}),
        control_frame({"t": "op", "id": [1], "op": 7, "body": payload}),
        control_frame({"t": "ok", "id": 1, "body": {}}),
    ]
    for body in bodies:
        sock = prove(tools, tools_token(), ROLE_TOOL, "tools")
        sock.sendall(body)
        sock.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            assert b"spawned" not in sock.recv(1 << 16)
        sock.close()
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    assert not (tmp_path / "unpickled").exists()


def test_an_oversized_frame_of_a_proved_peer_takes_no_memory(victims: ActorMesh[Victim]) -> None:
    """N5: refused by its length, before anything is taken for it."""
    tools, rank, other = sockets()
    name = rank.rpartition("/")[2].replace(".", "/") + "/victim"
    for path, secret, role, endpoint in (
        (tools, tools_token(), ROLE_TOOL, "tools"),
        (rank, current_runtime().secret, ROLE_DATA, name),
    ):
        sock = prove(path, secret, role, endpoint)
        sock.sendall(struct.pack(">IBI", 0x7FFFFFFF, 1, 5) + bytes(100))
        assert closes(sock) == b""
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    pid = victims.slice(n=0).pid.call_one().get(LONG)
    assert psutil.Process(pid).memory_info().rss < 300 << 20 and other


def connections(pid: int) -> int:
    count = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(path).startswith("socket:")
    return count


def test_silent_connections_are_few_and_short(victims: ActorMesh[Victim]) -> None:
    """N2, N10: 200 that never prove anything: at most 64 are kept, calls and new callers go on, none lasts."""
    first = victims.slice(n=0).pid.call_one().get(LONG)
    tools = sockets()[0]
    rank = next(path for path in sockets()[1:] if path.endswith(".0"))
    for path, pid in ((rank, first), (tools, os.getpid())):
        before = connections(pid)
        socks = [dial(path) for _ in range(200)]
        for index, sock in enumerate(socks):
            if index % 2:
                with contextlib.suppress(ConnectionError):
                    sock.sendall(hello()[: index % 40])
        assert victims.echo.call(1).get(LONG).values() == [1, 1]
        own = len(socks) if pid == os.getpid() else 0
        wait_until(lambda: connections(pid) - before - own <= UNPROVED_MAX, SILENT)  # noqa: B023 - used at once
        for sock in socks:
            assert closes(sock) == b""
        wait_until(lambda: connections(pid) <= before, SILENT)  # noqa: B023 - used at once


def test_a_storm_of_connections(victims: ActorMesh[Victim], caplog: pytest.LogCaptureFixture) -> None:
    """N10: and the log says it once, not each time."""
    for path in sockets():
        for _ in range(1500):
            with contextlib.suppress(ConnectionError), dial(path) as sock:
                sock.send(b"GET / HTTP/1.0\r\n\r\n")
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    assert sum("was refused" in record.message for record in caplog.records) <= 1


# -- what can be seen from outside


def test_no_process_of_the_program_listens_on_the_network(victims: ActorMesh[Victim]) -> None:
    victims.echo.call(1).get(LONG)
    listening = set()
    for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        with contextlib.suppress(FileNotFoundError):
            lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            listening |= {line.split()[9] for line in lines}
    for pid in [os.getpid(), *descendants(os.getpid())]:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(path)
                assert name.removeprefix("socket:[").removesuffix("]") not in listening, (pid, name)
    abstract = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if " @" in line]
    assert not [name for name in abstract if "meshrt" in name]


def test_the_directory_is_private_and_holds_all_sockets(victims: ActorMesh[Victim]) -> None:
    victims.echo.call(1).get(LONG)
    directory = Path(current_runtime().directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.parent.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((directory / "tools.token").stat().st_mode) == 0o600
    bound = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "/" in line]
    mine = [path for path in bound if path.startswith(str(directory.parent))]
    assert {os.path.dirname(path) for path in mine} == {str(directory)}


def test_the_secret_is_nowhere_to_be_read(victims: ActorMesh[Victim]) -> None:
    """Not in command lines, environments, files, nor in what is printed of the objects that hold it."""
    victims.echo.call(1).get(LONG)
    runtime = current_runtime()
    needles = [runtime.secret, runtime.secret.hex().encode(), repr(runtime.secret)[2:-1].encode()]
    places: list[bytes] = []
    for pid in [os.getpid(), *descendants(os.getpid())]:
        places += [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    for base in (os.environ["MESHRT_RUNTIME_DIR"], os.environ["MESHRT_RUNS"]):
        places += [path.read_bytes() for path in Path(base).rglob("*") if path.is_file()]
    places += [repr(value).encode() for value in (runtime, victims, vars(victims), runtime.driver)]
    places.append(str(victims.slice(n=0).apply.call_one(environment_of_rank).get(LONG)).encode())
    assert not [place[:200] for place in places for needle in needles if needle in place]


def environment_of_rank() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture
def as_nobody() -> Iterator[list[str]]:
    tool = shutil.which("setpriv")
    if os.geteuid() != 0 or tool is None:
        pytest.skip("running as another user needs root and setpriv")
    yield [tool, "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def test_another_user_is_refused(as_nobody: list[str], victims: ActorMesh[Victim]) -> None:
    """D5: by the directory's mode; and where that is opened, by the peer's user id, before a byte is sent."""
    directory = Path(current_runtime().directory)
    script = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(10)
try:
    sock.connect(sys.argv[1])
    sock.send(b"meshrt")
    print(repr(sock.recv(100)))
except OSError as error:
    print(type(error).__name__)
"""

    def connect(path: str) -> str:
        command = [*as_nobody, sys.executable, "-c", script, path]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG).stdout.strip()

    if not connect(str(directory / "tools")):
        pytest.skip("another user cannot run this interpreter")
    assert [connect(path) for path in sockets()] == ["PermissionError"] * 3
    parents = [path for path in directory.parents if path.stat().st_uid == os.geteuid() and str(path).startswith("/tmp/")]
    opened = [directory, *parents, *map(Path, sockets())]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in opened]
    try:
        for path in opened:
            path.chmod(0o777)
        assert all(connect(path) in ("b''", "ConnectionResetError", "BrokenPipeError") for path in sockets())
    finally:
        for path, mode in zip(opened, modes, strict=True):
            path.chmod(mode)
    assert victims.echo.call(1).get(LONG).values() == [1, 1]


@pytest.mark.parametrize("trouble", ["mode", "link"])
def test_a_directory_that_others_may_touch_is_refused(trouble: str, tmp_path: Path) -> None:
    base = tmp_path / "r"
    if trouble == "mode":
        base.mkdir(mode=0o777)
        base.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        base.symlink_to(tmp_path / "elsewhere")
    command = [sys.executable, "-c", "from meshrt import proc_mesh; proc_mesh(n=1)"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LONG, cwd=ROOT,
        env=environment(MESHRT_RUNTIME_DIR=str(base)),
    )
    assert done.returncode == 1 and str(base) in done.stderr.splitlines()[-1], done.stderr

"""Who holds no secret gets nothing: garbage, wrong proofs, silence, storms."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import psutil
import pytest

from meshrt import ActorMesh, proc_mesh
from meshrt.selection import Extent, Shape
from meshrt.transport.process import current_runtime
from meshrt.wire.handshake import MAGIC, ROLE_DATA, ROLE_STORE, ROLE_TOOL, UNPROVED_MAX, ClientHandshake, Identity
from meshrt.wire.messages import STORED
from tests.faults.actors import Victim
from tests.faults.watch import LONG, sockets
from tests.support.control import raw_frame
from tests.support.waiting import wait_until

#: Seconds after which a silent connection is closed (3) on a loaded machine.
SILENT = 10.0


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def victims() -> ActorMesh[Victim]:
    return proc_mesh(n=2).spawn("victim", Victim).get(LONG)


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


@pytest.mark.slow
@pytest.mark.row("N4")
@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused_at_once(what: str, victims: ActorMesh[Victim]) -> None:
    """At the ranks, at the tools' socket and at the store; the mesh does not notice."""
    assert len(sockets()) == 4
    for path in sockets():
        sock = dial(path)
        with contextlib.suppress(ConnectionError):
            sock.sendall(GARBAGE[what])
        assert closes(sock) == b""
    assert victims.echo.call(1).get(LONG).values() == [1, 1]


#: What listens under each role: how the name of its socket begins, if not with the mesh's id.
NAMES = {ROLE_TOOL: "tools", ROLE_STORE: "store"}


@pytest.mark.row("N4", "D5")
@pytest.mark.parametrize("role", [ROLE_DATA, ROLE_TOOL, ROLE_STORE])
def test_a_wrong_secret_is_refused(role: int, victims: ActorMesh[Victim], tmp_path: Path) -> None:
    """It gets the server's proof, which tells nothing; what it sends with its own is never looked at."""
    payload = pickle.dumps((None, Touch(tmp_path / "unpickled"), (), {}))
    for path in sockets():
        name = path.rpartition("/")[2]
        if NAMES.get(role, "") != next(filter(name.startswith, NAMES.values()), ""):
            continue
        endpoint = NAMES.get(role) or name.replace(".", "/") + "/victim"
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
    _, first, second, _ = sockets()
    name = first.rpartition("/")[2].replace(".", "/") + "/victim"
    sock = dial(second)
    sock.sendall(ClientHandshake(current_runtime().secret, ROLE_DATA, name).hello())
    assert len(closes(sock)) <= 64
    assert victims.echo.call(1).get(LONG).values() == [1, 1]


def prove(path: str, secret: bytes, role: int, endpoint: str, identity: Identity | None = None) -> socket.socket:
    sock = dial(path)
    handshake = ClientHandshake(secret, role, endpoint, identity)
    sock.sendall(handshake.hello())
    while not handshake.done:
        sock.sendall(handshake.receive_data(sock.recv(4096)))
    return sock


def tools_token() -> bytes:
    return bytes.fromhex((Path(current_runtime().directory) / "tools.token").read_text())


@pytest.mark.row("N4", "D5")
def test_a_terminal_reaches_no_rank_and_no_pickle(victims: ActorMesh[Victim], tmp_path: Path) -> None:
    """The token of terminals opens the tools' socket only, and nothing that comes there is unpickled."""
    tools, rank, _, store = sockets()
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
    sock = dial(store)
    sock.sendall(hello(ROLE_TOOL, b"store"))
    assert closes(sock) == b"", "the store is for the program's own processes"
    bodies: list[bytes] = [
        frame(1, b"\x95\x01\xa4echo\xc4\x00\x91\x05\x00", payload),
        frame(2, b"\x94\x01\xa1x\xc4\x00\x91\x05", payload),
        frame(16, b"\xc0", payload),
        frame(16, b"\x92\xa1m\x00", payload),
        raw_frame({"t": "stop", "drain": False, "why": ""}),
        raw_frame({"t": "op"}),
        raw_frame({"t": "op", "id": 1, "op": "mesh.spawn", "body": {}}),
        raw_frame({"t": "op", "id": [1], "op": 7, "body": payload}),
        raw_frame({"t": "ok", "id": 1, "body": {}}),
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


@pytest.mark.row("N5")
def test_an_oversized_frame_of_a_proved_peer_takes_no_memory(victims: ActorMesh[Victim]) -> None:
    """Refused by its length, before anything is taken for it."""
    tools, rank, other, store = sockets()
    name = rank.rpartition("/")[2].replace(".", "/") + "/victim"
    for path, secret, role, endpoint in (
        (tools, tools_token(), ROLE_TOOL, "tools"),
        (rank, current_runtime().secret, ROLE_DATA, name),
        (store, current_runtime().secret, ROLE_STORE, "store"),
    ):
        sock = prove(path, secret, role, endpoint)
        sock.sendall(struct.pack(">IBI", 0x7FFFFFFF, 1, 5) + bytes(100))
        assert closes(sock) == b""
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    pid = victims.slice(n=0).pid.call_one().get(LONG)
    assert psutil.Process(pid).memory_info().rss < 300 << 20 and other


EVERYWHERE = msgpack.packb([*Shape.from_extent(Extent(("n",), (2,))).to_wire(), b""])
#: What a caller of a rank may send behind its proof, and must not.
NONSENSE = {
    "an unknown type": frame(77, b"\x90", b"x"),
    "a header that is no msgpack": frame(1, b"\xc1\xc1", b""),
    "a header of another form": frame(1, b"\x81\xa1a\x01", b"payload"),
    "numbers for names": frame(1, b"\x95\x01\x02\x03\x04\x05", b"payload"),
    "a control message": raw_frame({"t": "stop", "drain": False, "why": ""}),
    "a class of another form": frame(2, b"\x94\x01\xa1x\xc4\x00\x91\x05", b"payload"),
    "arrays in arrays": frame(1, b"\x91" * 250, b""),
    "a longer array than there are bytes": frame(1, b"\xdd\xff\xff\xff\xff", b""),
    "a total of an exbibyte": frame(0x81, struct.pack(">Q", 1 << 60) + b"\x90", b"x"),
    "an interrupted message": frame(0x81, struct.pack(">Q", 1 << 20) + b"\x90", b"x") + frame(1, b"\x90", b""),
    "an end without a header": frame(3, b"\x01", b""),
    "an end with an empty one": frame(3, b"\x90", b""),
    "an answer": frame(4, b"\x92\x01\xc0", b""),
    "a call with numbers for names": frame(1, msgpack.packb([1, [], EVERYWHERE, [5], "x"]), b"payload"),
    "what is in shared memory that there is not": frame(1 | STORED, b"\x93\x01\x02\x03", b"x"),
}


@pytest.mark.row("N5")
def test_nonsense_of_a_proved_caller_costs_its_connection_alone(victims: ActorMesh[Victim]) -> None:
    """Its rank lives, with the memory that it had, and so do all other links."""
    _, rank, _, _ = sockets()
    name = rank.rpartition("/")[2].replace(".", "/") + "/victim"
    process = psutil.Process(victims.pid.call().get(LONG).values()[int(rank[-1])])
    before = process.memory_info().rss
    for what, data in NONSENSE.items():
        sock = prove(rank, current_runtime().secret, ROLE_DATA, name)
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        assert b"pickle" not in closes(sock), what
        assert victims.echo.call(what).get(LONG).values() == [what] * 2
    assert process.memory_info().rss < before + (8 << 20)


def connections(pid: int) -> int:
    count = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(path).startswith("socket:")
    return count


@pytest.mark.row("N10")
def test_of_many_silent_connections_few_are_kept(victims: ActorMesh[Victim]) -> None:
    """Those that came last; who proves the secret is let in beside them."""
    rank = next(path for path in sockets()[1:] if path.endswith(".0"))
    pid = victims.slice(n=0).pid.call_one().get(LONG)
    before = connections(pid)
    socks = [dial(rank) for _ in range(300)]
    try:
        name = rank.rpartition("/")[2].replace(".", "/") + "/victim"
        prove(rank, current_runtime().secret, ROLE_DATA, name).close()
        assert victims.echo.call(1).get(LONG).values() == [1, 1]
        wait_until(lambda: connections(pid) <= before + UNPROVED_MAX, SILENT)
    finally:
        for sock in socks:
            sock.close()


@pytest.mark.row("N10")
@pytest.mark.nightly
def test_silent_connections_are_few_and_short(victims: ActorMesh[Victim]) -> None:
    """200 that never prove anything: at most 64 are kept, calls and new callers go on, none lasts."""
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


@pytest.mark.row("N10")
def test_a_storm_of_connections(victims: ActorMesh[Victim], caplog: pytest.LogCaptureFixture) -> None:
    """And the log says it once, not each time."""
    for path in sockets():
        for _ in range(1500):
            with contextlib.suppress(ConnectionError), dial(path) as sock:
                sock.send(b"GET / HTTP/1.0\r\n\r\n")
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    refused = [getattr(record, "rank", None) for record in caplog.records if "was refused" in record.message]
    assert len(refused) == len(set(refused))  # once in each process


@pytest.mark.row("N5")
def test_nonsense_of_a_proved_peer_ends_its_connection_to_the_store(victims: ActorMesh[Victim]) -> None:
    """Whatever it says: the host agent, and all who hold something, go on."""
    store = sockets()[-1]
    nonsense: list[dict[str, Any]] = [
        {"t": "nothing"},
        {"t": "chunk", "id": 1, "size": 1},
        {"t": "grant", "n": 1, "size": "much"},
        {"t": "lend", "segment": [1], "chunk": 1, "size": 1, "kind": "", "site": "", "to": 7},
        {"t": "give", "segments": [1], "to": ["x"]},
        {"t": "take"},
        {"t": "let_go", "segments": 5},
        {"t": "fetch", "n": 1, "chunk": {}},
        {"t": "import", "n": 1, "loan": [1]},
        {"t": "import", "n": 1, "loan": [1, 2, 3, 4, 0, -1]},
        {"t": "pull", "n": 1, "segment": 1, "size": 1},
        {"t": "send", "n": 1, "loans": [[1, 2, 3, 4, 0, 5]], "to": [[1, 2, ["x"]]]},
        {"t": "send", "n": 1, "loans": 7, "to": []},
        {"t": "recall", "segments": [1], "to": [["a", 2, [1]]]},
        {"t": "take_back", "segments": ["all"], "to": [1]},
        {"t": "take_back", "segments": [1], "to": 7},
    ]
    of_hosts: list[dict[str, Any]] = [
        {"t": "grant", "n": 1, "size": 1},
        {"t": "pull", "n": 1, "segment": [1], "size": 1},
        {"t": "pull", "n": 1, "segment": 1, "size": "all"},
        {"t": "pull", "n": 1, "segment": 1, "size": 0},
        {"t": "offer", "n": 1, "loan": [1, 2, 3], "pids": [1]},
        {"t": "offer", "n": 1, "loan": [1, 2, 3, 4, 0, 5], "pids": [-1]},
        {"t": "recall", "segments": ["all"], "pids": [1]},
    ]
    here = current_runtime().store.identity()
    away = here._replace(machine=here.machine + 1)
    for message, identity in [*((each, here) for each in nonsense), *((each, away) for each in of_hosts)]:
        sock = prove(store, current_runtime().secret, ROLE_STORE, "store", identity)
        sock.sendall(raw_frame(message))
        assert closes(sock) == b"", message
        sock.close()
    array = np.ones(1 << 20)
    assert victims.apply.call(np.sum, array).get(LONG).values() == [1 << 20] * 2

"""What processes, and stores of other machines, say to the store of a host once they have proved the secret."""

from __future__ import annotations

import contextlib
import os
import selectors
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from meshrt.store.dialling import knock
from meshrt.store.machine import machine_of
from meshrt.store.messages import FROM_PROCESS, FROM_STORE, TO_PROCESS, Full, Granted
from meshrt.store.protocol import DescriptorStream, close_descriptors, store_path
from meshrt.store.server import StoreServer
from meshrt.wire.handshake import Identity
from tests.fuzz.mutating import packed
from tests.fuzz.running import BAIT, Target
from tests.support.control import raw_frame

__all__ = ["TARGETS"]

_SECRET = b"s" * 32
_PID = os.getpid()
#: Descriptors that go with one message, at most.
_MOST = 4


class _Scene:
    """A store, those that dial it, and what it wants to be done later."""

    def __init__(self, folder: Path) -> None:
        self.selector = selectors.DefaultSelector()
        self.later: list[Callable[[], None]] = []
        self.own = Identity(machine_of(os.getpid()), os.getpid(), os.getpid())
        self.store = StoreServer(
            self.selector, str(folder), str(folder), _SECRET, 64 << 20, lambda _s, do: self.later.append(do)
        )
        self._path = store_path(str(folder), os.getpid())
        self._streams: list[DescriptorStream] = []

    def serve(self) -> None:
        """Do what there is to do, as the loop of an agent does: what is raised here ends the agent."""
        for _ in range(200):
            ready = self.selector.select(0)
            for key, events in ready:
                key.data(events)
            waiting, self.later[:] = self.later[:], []
            for do in waiting:
                do()
            if not ready and not waiting:
                return

    def dial(self, machine: int) -> DescriptorStream:
        """Return a proved connection of a process of this machine, or of the store of another."""
        sock, handshake = knock(self._path, _SECRET, self.own._replace(machine=machine), 10.0)
        while not handshake.done:
            self.serve()
            sock.sendall(handshake.receive_data(sock.recv(256)))
        sock.setblocking(False)
        self._streams.append(DescriptorStream(sock))
        return self._streams[-1]

    def say(self, stream: DescriptorStream, message: dict[str, Any]) -> None:
        count = message.get("fds")
        files = [os.memfd_create("fuzz") for _ in range(min(count, _MOST))] if type(count) is int and count > 0 else []
        stream.unsent.append((memoryview(raw_frame(message)), files))
        with contextlib.suppress(OSError):  # it has hung up
            while not stream.flush():
                self.serve()
        self.serve()

    def close(self) -> None:
        self.store.tick()
        self.store.close()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()
        for stream in self._streams:
            for _, files in stream.unsent:
                close_descriptors(files)
            with contextlib.suppress(OSError):
                while stream.receive():
                    pass
            close_descriptors(stream.descriptors)
            stream.sock.close()


def _hear(data: bytes, machine: int) -> None:
    """Any messages; behind them another process is served, and no descriptor is left open."""
    try:
        messages = msgpack.unpackb(data, strict_map_key=False)
    except Exception:
        messages = data
    before = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory(prefix="mf", dir="/tmp") as folder:
        scene = _Scene(Path(folder))
        try:
            stream = scene.dial(machine or scene.own.machine)
            if isinstance(messages, list):
                for message in messages[:30]:
                    if isinstance(message, dict):
                        scene.say(stream, message)
                    else:
                        _say_bytes(scene, stream, packed(message))
            else:
                _say_bytes(scene, stream, data)
            other = scene.dial(scene.own.machine)
            scene.say(other, {"t": "grant", "id": 77, "size": 4096})
            answers = [message for message, _ in other.read(TO_PROCESS) or []]
            assert [answer.id for answer in answers if isinstance(answer, Granted | Full)] == [77]
        finally:
            scene.close()
    assert len(os.listdir("/proc/self/fd")) == before, "descriptors are left open"


def _say_bytes(scene: _Scene, stream: DescriptorStream, data: bytes) -> None:
    with contextlib.suppress(OSError):
        stream.sock.send(data)  # it does not block
    scene.serve()


def _from_process(data: bytes) -> None:
    _hear(data, 0)


def _from_host(data: bytes) -> None:
    _hear(data, 4711)


_SHARE = {
    "t": "share", "segment": 5, "chunk": 1, "start": 0, "size": 4096, "kind": "array", "site": "a.py:3", "disk": False,
    "to": [_PID],
}  # fmt: skip
_PUBLISH = {"t": "publish", "id": 1, "chunk": 1, "size": 1 << 20, "fds": 1}
_LOAN = [4711, 999_999, 1, 5, 0, 4096]


def _process_examples() -> list[bytes]:
    several: list[list[dict[str, Any]]] = [
        [_PUBLISH, _SHARE, {"t": "take", "id": 2, "segment": 5}, {"t": "let_go", "segments": [5, 5]}],
        [
            _PUBLISH,
            _SHARE,
            {"t": "give", "segments": [5], "to": [_PID, 1]},
            {"t": "take_back", "segments": [5], "pids": [1]},
        ],
        [_PUBLISH, _SHARE, {"t": "withdraw", "segments": [5]}, {"t": "fetch", "id": 4, "chunk": 1}],
        [{"t": "grant", "id": 1, "size": 1 << 20}, {"t": "give_back", "size": 4096}],
        [{"t": "import", "id": 3, "loan": _LOAN}, {"t": "recall", "segments": [5], "to": [[4711, 99, [7]]]}],
        [_PUBLISH, _SHARE, {"t": "deliver", "id": 6, "loans": [_LOAN], "to": [[4711, 999_999, [7, 8]]]}],
    ]
    for message in (message for messages in several for message in messages):
        FROM_PROCESS.convert(message)
    return [*map(packed, several), BAIT]


def _host_examples() -> list[bytes]:
    several: list[list[dict[str, Any]]] = [
        [{"t": "pull", "id": 1, "segment": 5, "size": 4096}, {"t": "let_go", "segments": [5]}],
        [{"t": "offer", "id": 2, "loan": _LOAN, "pids": [_PID]}, {"t": "take_back", "segments": [5], "pids": [_PID]}],
    ]
    for message in (message for messages in several for message in messages):
        FROM_STORE.convert(message)
    return [*map(packed, several), BAIT]


TARGETS = [
    Target("store", _from_process, _process_examples, (), "msgpack", count=600),
    Target("store-host", _from_host, _host_examples, (), "msgpack", count=300),
]

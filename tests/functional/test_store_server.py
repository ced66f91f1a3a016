"""The store of a host on a thread of its own: questions that are interrupted, and connections that are lost."""

from __future__ import annotations

import contextlib
import heapq
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from meshrt.errors import MeshError, ReferenceLost, StoreFull, StoreTimeout
from meshrt.store import registrar as registrar_module
from meshrt.store.arena import memory_chunk
from meshrt.store.dialling import dial
from meshrt.store.exports import PIECE
from meshrt.store.machine import machine_of
from meshrt.store.mapping import Mapping
from meshrt.store.messages import (
    TO_PROCESS,
    TO_STORE,
    Fetch,
    Fetched,
    Found,
    Grant,
    Granted,
    LetGo,
    Piece,
    Publish,
    Published,
    Pull,
    Share,
    Take,
    Taken,
    ToProcess,
    ToStore,
    Withdraw,
)
from meshrt.store.protocol import DescriptorStream, HostStream, store_path
from meshrt.store.registrar import Registrar
from meshrt.store.server import StoreServer
from meshrt.wire.handshake import Identity
from tests.support.control import raw_frame
from tests.support.waiting import wait_until

SECRET = b"s" * 32
MIB = 1 << 20


class Served:
    """A store, and the thread that serves it while `running` is set."""

    def __init__(self, directory: Path) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self.server = StoreServer(self._selector, str(directory), str(directory), SECRET, 10 * MIB, self._later)
        self.running, self.paused = threading.Event(), threading.Event()
        self.running.set()
        self._ended = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, id(action), action))

    def _serve(self) -> None:
        while not self._ended:
            if not self.running.is_set():
                self.paused.set()
                self.running.wait()
            self.round()

    def round(self, between: Callable[[], None] = lambda: None) -> None:
        """Look at what is ready, and do ``between`` when it was found, and not looked at yet."""
        ready = self._selector.select(0.01)
        between()
        for key, events in ready:
            key.data(events)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def pause(self) -> None:
        """Serve nobody until `running` is set."""
        self.paused.clear()
        self.running.clear()
        assert self.paused.wait(10)

    def end(self) -> None:
        self._ended = True
        self.running.set()
        self._thread.join()
        self.server.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path)
    yield found
    found.end()


@pytest.fixture
def registrar(served: Served, tmp_path: Path) -> Iterator[Registrar]:
    found = Registrar(str(tmp_path), SECRET, os.getpid(), machine_of(os.getpid()))
    yield found
    found.close()


def chunk(registrar: Registrar, number: int, letter: bytes, size: int = MIB) -> None:
    """Have a chunk that is full of a letter."""
    descriptor = memory_chunk(f"meshrt:{number}", size)
    try:
        Mapping(descriptor, size, writable=True).write(0, letter * size)
        registrar.ask(lambda id_: Publish(id_, number, size), Published, send=[descriptor])
    finally:
        os.close(descriptor)


def told_by_host(stream: DescriptorStream) -> list[ToStore | Piece]:
    """What a store says to that of another machine."""
    try:
        return HostStream(stream.sock, lambda _number, _size: None).read_all(TO_STORE) or []
    except BlockingIOError:
        return []


def take(registrar: Registrar, segment: int = 5) -> Taken:
    return registrar.ask(lambda number: Take(number, segment), Taken)


def grant(registrar: Registrar, size: int = 1) -> Granted:
    return registrar.ask(lambda number: Grant(number, size), Granted)


def shared(kind: str = "put") -> Share:
    """Segment 5, which is all of chunk 1, and which this process holds."""
    return Share(5, 1, 0, MIB, kind, "", False, [os.getpid()])


def interrupted(served: Served, question: Callable[[], object]) -> None:
    """Ask while nobody answers, and be interrupted."""

    def ring(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    served.pause()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            question()
    finally:
        signal.signal(signal.SIGALRM, before)
        served.running.set()


def test_the_answer_to_an_interrupted_question_is_nobodys(served: Served, registrar: Registrar) -> None:
    chunk(registrar, 1, b"a")
    chunk(registrar, 2, b"b")
    interrupted(served, lambda: registrar.chunks.mapping(1))
    assert bytes(registrar.chunks.mapping(2).window(0, 3, None)) == b"bbb"
    assert bytes(registrar.chunks.mapping(1).window(0, 3, None)) == b"aaa"
    interrupted(served, lambda: grant(registrar, 9 * MIB))
    with pytest.raises(StoreFull):
        grant(registrar, 11 * MIB)
    grant(registrar, 9 * MIB)  # what nobody has heard of was given back
    registrar.tell(shared())
    interrupted(served, lambda: take(registrar))
    take(registrar)
    wait_until(lambda: [each.holders for each in served.server.registry.segments()] == [{os.getpid(): 2}])


def test_a_process_that_has_lost_its_connection_holds_what_it_held(
    served: Served, registrar: Registrar, tmp_path: Path
) -> None:
    chunk(registrar, 1, b"a")
    registrar.tell(shared())
    take(registrar)
    registrar.close()
    again = Registrar(str(tmp_path), SECRET, os.getpid(), machine_of(os.getpid()))
    take(again)
    served.server.tick()
    assert [segment.holders for segment in served.server.registry.segments()] == [{os.getpid(): 3}]
    for _ in range(3):
        again.let_go(5)
    wait_until(lambda: served.server.registry.segments() == [])
    again.settle()
    assert list(again.freed) == [5]
    again.close()


def test_nonsense_beside_many_that_wait(served: Served, tmp_path: Path) -> None:
    """Each that is refused is told; the store goes on."""
    many = [Registrar(str(tmp_path), SECRET, os.getpid(), machine_of(os.getpid())) for _ in range(20)]
    for each in many:
        with pytest.raises(MeshError, match="no process holds it any more"):
            take(each, 99)
    many[0].settle()
    stream = many[0]._stream
    assert stream is not None
    stream.sock.send(raw_frame({"t": "nothing"}))
    with pytest.raises(MeshError):
        grant(many[0])
    grant(many[1])
    for each in many:
        each.close()


BAD: list[dict[str, Any]] = [
    {"t": "no such"},
    {"t": "grant", "id": 1, "size": "much"},
    {"t": "grant", "id": 1, "size": 1e300},
    {"t": "grant", "id": 1, "size": -4096},
    {"t": "take", "id": 1, "segment": [1]},
    {"t": "share", "segment": 5},
    {"t": "give", "segments": 5, "to": [1]},
    {"t": "give", "segments": [1], "to": [-1]},
    {"t": "let_go", "segments": {"a": None}, "fds": "many"},
    {"t": "import", "id": 1, "loan": "loan"},
    {"t": "deliver", "id": 1, "loans": [[1]], "to": [[1, 2]]},
    {"t": "publish", "id": 1, "chunk": {}, "size": None},
    {"t": "fetch", "id": 1, "chunk": {"no": "number"}},
]


@pytest.mark.parametrize("message", BAD, ids=lambda message: message["t"])
def test_a_bad_message_costs_its_sender_and_no_other(
    served: Served, registrar: Registrar, tmp_path: Path, message: dict[str, Any]
) -> None:
    own = Identity(machine_of(os.getpid()), os.getpid(), os.getpid())
    stream, _ = dial(store_path(str(tmp_path), os.getpid()), SECRET, own, 10, lambda: None)
    sock = cast(socket.socket, stream.sock)
    sock.settimeout(10)
    sock.sendall(raw_frame(message))
    with contextlib.suppress(ConnectionError):
        while sock.recv(4096):
            pass
    stream.close()
    grant(registrar)


def test_what_was_shared_and_not_sent_is_withdrawn(served: Served, registrar: Registrar) -> None:
    chunk(registrar, 1, b"a")
    registrar.tell(shared("argument"))
    registrar.tell_later(Withdraw([5]))
    wait_until(lambda: served.server.registry.segments() == [])
    with pytest.raises(MeshError, match="no process holds it any more"):
        take(registrar)


def test_what_could_be_told_only_in_part_is_taken_back_behind_it(
    served: Served, registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrar_module, "_PATIENCE", 0.1)
    registrar.connect()
    served.pause()
    many, told = list(range(1, 10_001)), 0

    def give_for_ever() -> None:
        nonlocal told
        while True:
            registrar.give(many, [os.getpid()])
            told += 1

    try:
        with pytest.raises(StoreTimeout):
            give_for_ever()
        # From here on nothing is told that would only lie there: and so nothing is to be taken back.
        with pytest.raises(StoreTimeout):
            registrar.give([10_001], [os.getpid()])
    finally:
        served.running.set()
    assert told

    def held() -> dict[int, dict[int, int]]:
        registrar.settle()
        return {number: dict(each.holders) for number, each in dict(served.server.registry._segments).items()}

    wait_until(lambda: held() == {number: {os.getpid(): told} for number in many})


def nothing(_stream: DescriptorStream) -> None:
    """Say nothing before something is shared."""


def much(stream: DescriptorStream) -> None:
    """Say more than is read at once."""
    for _ in range(3):
        stream.queue(Withdraw([9] * 40_000))


def descriptors(stream: DescriptorStream) -> None:
    """Say things that end a read each."""
    descriptor = memory_chunk("meshrt:9", MIB)
    for number in range(3):
        stream.queue_with(Publish(number, 90 + number, MIB), [descriptor])
    os.close(descriptor)


@pytest.mark.parametrize("before", [nothing, much, descriptors])
@pytest.mark.parametrize("machines", [1, 2])
def test_what_was_shared_before_it_is_asked_for_is_there(
    served: Served, registrar: Registrar, tmp_path: Path, before: Callable[[DescriptorStream], None], machines: int
) -> None:
    """Wherever it waits to be read: it is written when the store knows already whom it looks at next."""
    chunk(registrar, 1, b"a")
    pid, machine = os.getpid(), machine_of(os.getpid())
    path = store_path(str(tmp_path), pid)
    sharer, _ = dial(path, SECRET, Identity(machine, pid, pid), 20, lambda: None)
    taker, _ = dial(path, SECRET, Identity(machine + machines - 1, pid, pid), 20, lambda: None)
    served.pause()
    # Both are let in; then only the taker is ready, by something that is of no matter.
    served.round()
    taker.queue(LetGo([]))
    assert taker.flush()

    def share_and_take() -> None:
        before(sharer)
        sharer.queue(shared("argument"))
        assert sharer.flush()
        taker.queue(Take(1, 5) if machines == 1 else Pull(1, 5, 8))
        assert taker.flush()

    served.round(share_and_take)
    served.running.set()
    told: list[ToProcess | ToStore | Piece] = []

    def heard() -> bool:
        if machines == 1:
            told.extend(message for message, _ in taker.read(TO_PROCESS) or [])
        else:
            told.extend(told_by_host(taker))
        return bool(told)

    wait_until(heard)
    sharer.close()
    taker.close()
    assert told[0] == (Taken(1, 5) if machines == 1 else Found(1, "argument", "")), told


def test_another_machine_that_reads_slowly_keeps_nobody_waiting(
    served: Served, registrar: Registrar, tmp_path: Path
) -> None:
    """It is sent the next piece when it has taken the one before, and holds nothing when it is gone."""
    size = 8 * PIECE
    chunk(registrar, 1, b"a", size)
    registrar.tell(msgspec.structs.replace(shared(), size=size))
    elsewhere = machine_of(os.getpid()) + 1
    other = Identity(elsewhere, os.getpid(), os.getpid())
    stream, _ = dial(store_path(str(tmp_path), os.getpid()), SECRET, other, 20, lambda: None)
    stream.queue(Pull(1, 5, size))
    assert stream.flush()

    def holders() -> list[dict[int, int]]:
        return [segment.holders for segment in served.server.registry.segments()]

    wait_until(lambda: holders() == [{os.getpid(): 1, -1: 1}])
    for _ in range(20):
        grant(registrar)
    assert served.server.sent <= 3 * PIECE, "what the connection takes, and a piece"
    reader = HostStream(stream.sock, lambda _number, _size: None)
    came: list[ToStore | Piece] = []
    pieces: list[bytes] = []
    while sum(map(len, pieces)) < size:
        with contextlib.suppress(BlockingIOError):
            came += reader.read_all(TO_STORE) or []
        pieces = [bytes(message.data) for message in came if isinstance(message, Piece)]
    assert came[0] == Found(1, "put", "") and len(came) == 1 + len(pieces)
    assert b"".join(pieces) == b"a" * size and served.server.sent == size
    stream.sock.close()
    wait_until(lambda: holders() == [{os.getpid(): 1}])
    intruder = Registrar(str(tmp_path), SECRET, os.getpid(), elsewhere)
    with pytest.raises(MeshError):
        intruder.ask(lambda number: Fetch(number, 1), Fetched)


@pytest.mark.usefixtures("served")
def test_a_chunk_that_there_is_no_descriptor_for_is_had_later(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_descriptor: int) -> int:
        raise OSError("none left")

    chunk(registrar, 1, b"a")
    with monkeypatch.context() as patch:
        patch.setattr("meshrt.store.protocol.os.dup", none_left)
        with pytest.raises(ReferenceLost, match="the host agent has no file descriptor left"):
            registrar.chunks.mapping(1)
    assert bytes(registrar.chunks.mapping(1).window(0, 2, None)) == b"aa", "the connection is not lost for that"


def test_where_no_addresses_are_left_it_is_read(
    served: Served, registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError("no addresses")

    chunk(registrar, 1, b"a")
    monkeypatch.setattr("meshrt.store.chunks.Mapping", full)
    window = registrar.chunks.mapping(1).window(3, 4, None)
    assert bytes(window) == b"aaaa" and window.readonly

"""The store of a host on a thread of its own: questions that are interrupted, and connections that are lost."""

from __future__ import annotations

import contextlib
import heapq
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import MeshError, ReferenceLost, StoreFull, StoreTimeout
from meshrt.store import registrar as registrar_module
from meshrt.store.arena import memory_chunk
from meshrt.store.dialling import dial
from meshrt.store.exports import PIECE
from meshrt.store.machine import machine_of
from meshrt.store.mapping import Mapping
from meshrt.store.protocol import DescriptorStream, store_path
from meshrt.store.registrar import Registrar
from meshrt.store.server import StoreServer
from meshrt.wire.handshake import Identity
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


def chunk(registrar: Registrar, number: int, letter: bytes) -> None:
    """Have a chunk of one mebibyte that is full of a letter."""
    descriptor = memory_chunk(f"meshrt:{number}", MIB)
    try:
        Mapping(descriptor, MIB, writable=True).write(0, letter * MIB)
        registrar.ask("chunk", [descriptor], id=number, size=MIB)
    finally:
        os.close(descriptor)


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
    interrupted(served, lambda: registrar.ask("grant", size=9 * MIB))
    with pytest.raises(StoreFull):
        registrar.ask("grant", size=11 * MIB)
    registrar.ask("grant", size=9 * MIB)  # what nobody has heard of was given back
    body = {"segment": 5, "chunk": 1, "start": 0, "size": MIB, "kind": "put", "site": "", "disk": False}
    registrar.tell({"t": "lend", **body, "to": [os.getpid()]})
    interrupted(served, lambda: registrar.ask("take", segment=5))
    registrar.ask("take", segment=5)
    wait_until(lambda: [each.holders for each in served.server.registry.segments()] == [{os.getpid(): 2}])


def test_a_process_that_has_lost_its_connection_holds_what_it_held(
    served: Served, registrar: Registrar, tmp_path: Path
) -> None:
    chunk(registrar, 1, b"a")
    body = {"segment": 5, "chunk": 1, "start": 0, "size": MIB, "kind": "put", "site": "", "disk": False}
    registrar.tell({"t": "lend", **body, "to": [os.getpid()]})
    registrar.ask("take", segment=5)
    registrar.close()
    again = Registrar(str(tmp_path), SECRET, os.getpid(), machine_of(os.getpid()))
    again.ask("take", segment=5)
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
        with pytest.raises(MeshError, match="nobody holds it any more"):
            each.ask("take", segment=99)
    with pytest.raises(MeshError):
        many[0].ask("nothing")
    many[1].ask("grant", size=1)
    for each in many:
        each.close()


BAD: list[dict[str, Any]] = [
    {"t": "no such"},
    {"t": "grant", "n": 1, "size": "much"},
    {"t": "grant", "n": 1, "size": 1e300},
    {"t": "take", "n": 1, "segment": [1]},
    {"t": "lend", "segment": 5},
    {"t": "give", "segments": 5, "to": [1]},
    {"t": "give", "segments": [1], "to": [-1]},
    {"t": "let_go", "segments": {"a": None}, "fds": "many"},
    {"t": "import", "n": 1, "loan": "loan"},
    {"t": "send", "n": 1, "loans": [[1]], "to": [[1, 2]]},
    {"t": "chunk", "n": 1, "id": {}, "size": None},
    {"t": "fetch", "n": 1, "chunk": {"no": "number"}},
]


@pytest.mark.parametrize("message", BAD, ids=lambda message: message["t"])
def test_a_bad_message_costs_its_sender_and_no_other(
    served: Served, registrar: Registrar, tmp_path: Path, message: dict[str, Any]
) -> None:
    own = Identity(machine_of(os.getpid()), os.getpid(), os.getpid())
    stream, _ = dial(store_path(str(tmp_path), os.getpid()), SECRET, own, 10, lambda: None)
    stream.queue(message)
    stream.flush()
    stream.sock.settimeout(10)
    with contextlib.suppress(ConnectionError):
        while stream.sock.recv(4096):
            pass
    stream.close()
    registrar.ask("grant", size=1)


def test_what_was_lent_and_not_sent_is_withdrawn(served: Served, registrar: Registrar) -> None:
    chunk(registrar, 1, b"a")
    body = {"segment": 5, "chunk": 1, "start": 0, "size": MIB, "kind": "argument", "site": "", "disk": False}
    registrar.tell({"t": "lend", **body, "to": [os.getpid()]})
    registrar.withdraw(5)
    wait_until(lambda: served.server.registry.segments() == [])
    with pytest.raises(MeshError, match="nobody holds it any more"):
        registrar.ask("take", segment=5)


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
    """Say nothing before something is lent."""


def much(stream: DescriptorStream) -> None:
    """Say more than is read at once."""
    for _ in range(3):
        stream.queue({"t": "withdraw", "segments": [9] * 40_000})


def descriptors(stream: DescriptorStream) -> None:
    """Say things that end a read each."""
    descriptor = memory_chunk("meshrt:9", MIB)
    for number in range(3):
        stream.queue({"t": "chunk", "n": number, "id": 90 + number, "size": MIB}, [descriptor])
    os.close(descriptor)


@pytest.mark.parametrize("before", [nothing, much, descriptors])
@pytest.mark.parametrize("machines", [1, 2])
def test_what_was_lent_before_it_is_asked_for_is_there(
    served: Served, registrar: Registrar, tmp_path: Path, before: Callable[[DescriptorStream], None], machines: int
) -> None:
    """Wherever it waits to be read: it is written when the store knows already whom it looks at next."""
    chunk(registrar, 1, b"a")
    pid, machine = os.getpid(), machine_of(os.getpid())
    path = store_path(str(tmp_path), pid)
    lender, _ = dial(path, SECRET, Identity(machine, pid, pid), 20, lambda: None)
    taker, _ = dial(path, SECRET, Identity(machine + machines - 1, pid, pid), 20, lambda: None)
    served.pause()
    # Both are let in; then only the taker is ready, by something that is of no matter.
    served.round()
    taker.queue({"t": "let_go", "segments": []})
    assert taker.flush()

    def lend_and_take() -> None:
        before(lender)
        body = {"segment": 5, "chunk": 1, "start": 0, "size": MIB, "kind": "argument", "site": "", "disk": False}
        lender.queue({"t": "lend", **body, "to": [pid]})
        assert lender.flush()
        taker.queue(
            {"t": "take", "n": 1, "segment": 5} if machines == 1 else {"t": "pull", "n": 1, "segment": 5, "size": 8}
        )
        assert taker.flush()

    served.round(lend_and_take)
    served.running.set()
    told: list[dict[str, Any]] = []

    def heard() -> bool:
        told.extend(taker.read() or [])
        return bool(told)

    wait_until(heard)
    lender.close()
    taker.close()
    assert told[0]["t"] == "ok", told


def test_another_machine_that_reads_slowly_keeps_nobody_waiting(
    served: Served, registrar: Registrar, tmp_path: Path
) -> None:
    """It is sent the next piece when it has taken the one before, and holds nothing when it is gone."""
    chunk(registrar, 1, b"a")
    body = {"segment": 5, "chunk": 1, "start": 0, "size": MIB, "kind": "put", "site": "", "disk": False}
    registrar.tell({"t": "lend", **body, "to": [os.getpid()]})
    elsewhere = machine_of(os.getpid()) + 1
    other = Identity(elsewhere, os.getpid(), os.getpid())
    stream, _ = dial(store_path(str(tmp_path), os.getpid()), SECRET, other, 20, lambda: None)
    stream.queue({"t": "pull", "n": 1, "segment": 5, "size": MIB})
    assert stream.flush()

    def holders() -> list[dict[int, int]]:
        return [segment.holders for segment in served.server.registry.segments()]

    wait_until(lambda: holders() == [{os.getpid(): 1, -1: 1}])
    for _ in range(20):
        registrar.ask("grant", size=1)
    assert served.server.sent <= 3 * PIECE, "what the connection takes, and a piece"
    came: list[dict[str, Any]] = []
    while sum(len(message.get("data", b"")) for message in came) < MIB:
        came += stream.read() or []
    assert b"".join(message["data"] for message in came[1:]) == b"a" * MIB and served.server.sent == MIB
    stream.sock.close()
    wait_until(lambda: holders() == [{os.getpid(): 1}])
    intruder = Registrar(str(tmp_path), SECRET, os.getpid(), elsewhere)
    with pytest.raises(MeshError):
        intruder.ask("fetch", chunk=1)


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

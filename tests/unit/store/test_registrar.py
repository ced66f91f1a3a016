"""What is said to a store waits for nobody, and who asks it keeps no other thread waiting."""

from __future__ import annotations

import itertools
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import MeshError, ReferenceLost, StoreTimeout
from meshrt.store import registrar as module
from meshrt.store.protocol import DescriptorStream, store_path
from meshrt.store.registrar import Registrar
from meshrt.transport.interrupts import Shield
from tests.support.waiting import wait_until

Pair = tuple[Registrar, DescriptorStream]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A registrar, and the other end of its connection."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    registrar = Registrar("/nowhere", b"s" * 32, 1)
    registrar._stream = DescriptorStream(ours)
    yield registrar, DescriptorStream(theirs)
    registrar.close()
    theirs.close()


def test_a_store_that_does_not_read_is_not_waited_for(pair: Pair) -> None:
    registrar, store = pair
    stream = registrar._stream
    assert stream is not None
    while not stream.unsent:
        registrar.let_go(5)
    registrar.give_back(4096)
    registrar.give_back(4096)
    assert stream.unsent and not registrar.lost
    told = []
    while more := store.read():
        told += more
        registrar.settle()
    assert [message["size"] for message in told if message["t"] == "grant"] in ([-8192], [-4096, -4096])
    assert all(message["segments"] == [5] for message in told if message["t"] == "let_go")


def assert_answered(registrar: Registrar, store: DescriptorStream) -> None:
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(registrar.ask, "take", segment=3)
        say(store, {"t": "ok", "n": hear(store)["n"], "taken": 3})
        assert asking.result(20)[0]["taken"] == 3


def tell_without_end(registrar: Registrar, numbers: Iterator[int]) -> None:
    for number in numbers:
        registrar.tell({"t": "lend", "segment": number, "site": "x" * 1000})


def test_a_store_that_was_told_in_vain_is_told_when_it_reads_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    registrar, store = pair
    numbers = itertools.count()
    with pytest.raises(StoreTimeout, match="pid 1"):
        tell_without_end(registrar, numbers)
    assert not registrar.lost
    told = []
    while more := store.read():
        told += more
        registrar.settle()
    assert [message["segment"] for message in told] == list(range(next(numbers)))
    assert_answered(registrar, store)


def test_a_store_that_does_not_read_is_waited_for_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    registrar, store = pair
    waits: list[float] = []

    def in_vain(_sock: object, _events: int, deadline: float, _pause: object) -> None:
        waits.append(deadline)
        raise TimeoutError

    monkeypatch.setattr(module, "wait_for", in_vain)
    numbers = itertools.count()
    with pytest.raises(StoreTimeout):
        tell_without_end(registrar, numbers)
    unsent = len(registrar._stream.unsent)  # type: ignore[union-attr]
    for _ in range(3):
        with pytest.raises(StoreTimeout):
            registrar.tell({"t": "lend"})
        with pytest.raises(StoreTimeout):
            registrar.ask("grant")
    assert len(waits) == 1 and len(registrar._stream.unsent) == unsent  # type: ignore[union-attr]
    while store.read():
        registrar.settle()
    registrar.tell({"t": "lend"})
    assert hear(store)["t"] == "lend", "it has read all, and owes nothing: it is not mute"


@pytest.mark.parametrize("unread", [False, True])
def test_a_store_that_has_ended_is_lost_whether_it_has_read_all_or_not(unread: bool, pair: Pair) -> None:
    registrar, store = pair
    if unread:  # or else the socket says that its other end has gone, and no more
        registrar.tell({"t": "lend"})
    store.close()
    with pytest.raises(ReferenceLost):
        registrar.ask("grant", size=1)
    assert registrar.lost
    with pytest.raises(ReferenceLost):
        registrar.tell({"t": "lend"})


@pytest.mark.parametrize("unread", [False, True])
def test_a_store_that_ends_while_it_is_dialled_is_lost(unread: bool, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(store_path(str(tmp_path), 1))
        listener.listen()
        dialling = threads.submit(Registrar(str(tmp_path), b"s" * 32, 1).ask, "grant", size=1)
        accepted, _ = listener.accept()
        wait_until(lambda: select.select([accepted], [], [], 0)[0])
        if not unread:
            accepted.recv(4096)
        accepted.close()
        with pytest.raises(ReferenceLost):
            dialling.result(20)


def opened(name: str) -> list[int]:
    """The descriptors of a memfd that this process has."""
    with os.scandir("/proc/self/fd") as found:
        numbers = [int(each.name) for each in found]
    return [number for number in numbers if is_memfd(number, name)]


def is_memfd(descriptor: int, name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == f"/memfd:{name} (deleted)"
    except FileNotFoundError:
        return False  # that of the folder


def test_a_store_that_ends_while_it_is_mute_is_lost(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    registrar, store = pair
    with pytest.raises(StoreTimeout):
        tell_without_end(registrar, itertools.count())
    store.sock.close()
    registrar.settle()
    with pytest.raises(ReferenceLost, match="has ended"):
        registrar.ask("grant")


@pytest.mark.parametrize("reads", [True, False])
def test_what_goes_with_a_question_goes_whatever_becomes_of_its_descriptor(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """Who asks closes it when the time-out ends; the connection is not lost for that, and the store gets the file."""
    registrar, store = pair
    with monkeypatch.context() as patch:
        patch.setattr(module, "_PATIENCE", 0.0)
        with pytest.raises(StoreTimeout):
            tell_without_end(registrar, itertools.count())
        registrar._silence.forget()
        asked = os.memfd_create("asked")
        with pytest.raises(StoreTimeout):
            registrar.ask("chunk", [asked], id=1)
        os.close(asked)
    assert not registrar.lost and len(opened("asked")) == 1
    told: list[dict[str, Any]] = []
    while reads and (more := store.read()):
        told += more
        registrar.settle()
    if reads:
        assert (told[-1]["t"], told[-1]["descriptors"]) == ("chunk", opened("asked"))
        say(store, {"t": "ok", "n": told[-1]["n"]})
        assert_answered(registrar, store)
        os.close(told[-1]["descriptors"][0])
        with pytest.raises(OSError, match="Bad file"):
            registrar.ask("chunk", [-1], id=2)
        assert_answered(registrar, store)
        assert registrar._questions.owed == 0, "nor was it asked what could not be queued"
    registrar.close()
    assert opened("asked") == []


def test_one_question_that_is_not_answered_makes_no_store_mute(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it while it speaks to others; it is when it has spoken to nobody, until it answers that question."""
    registrar, store = pair
    with ThreadPoolExecutor(1) as threads:
        for speaks in (True, False):
            unanswered = threads.submit(registrar.ask, "send")
            number = hear(store)["n"]
            if speaks:
                say(store, {"t": "freed", "segments": [1]})
                wait_until(lambda: registrar.freed, 20, "it is heard")
            with monkeypatch.context() as patch:
                patch.setattr(module, "_PATIENCE", 0.0)
                with pytest.raises(StoreTimeout):
                    unanswered.result(20)
            if speaks:
                assert_answered(registrar, store)
    with pytest.raises(StoreTimeout):
        registrar.ask("grant")
    registrar.tell({"t": "lend"})
    assert hear(store)["t"] == "lend", "nobody has waited for it to read"
    say(store, {"t": "ok", "n": number, "to": []})
    assert_answered(registrar, store)


def test_a_store_that_a_tick_has_reached_again_is_asked(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    registrar, store = pair
    stream, registrar._stream = registrar._stream, None

    def stands_still(*_arguments: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(module, "dial", stands_still)
    with pytest.raises(StoreTimeout):
        registrar.ask("grant")
    registrar.let_go(5)
    monkeypatch.setattr(module, "dial", lambda *_arguments: (stream, []))
    registrar.tend()
    assert hear(store)["segments"] == [5]
    assert_answered(registrar, store)


@pytest.mark.parametrize("said", [b"", b"nonsense" * 100], ids=["it hangs up", "it says nonsense"])
def test_a_tick_goes_on_where_a_store_lets_nobody_in(tmp_path: Path, said: bytes) -> None:
    registrar = Registrar(str(tmp_path), b"s" * 32, 1)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(store_path(str(tmp_path), 1))
        listener.listen()
        listener.settimeout(20)  # or else what fails here would wait for the thread for ever

        def let_nobody_in() -> None:
            for _ in range(2):
                with listener.accept()[0] as caller:
                    caller.recv(256)
                    caller.sendall(said)

        refusing = threads.submit(let_nobody_in)
        registrar.let_go(5)
        registrar.tend()
        assert registrar.has_work, "it is said another time"
        with pytest.raises(MeshError):
            registrar.connect()
        refusing.result(20)
    registrar.tend()
    assert registrar.lost, "nobody listens any more"


def test_what_the_store_says_is_heard(pair: Pair) -> None:
    registrar, store = pair
    store.queue({"t": "freed", "segments": [1, 2]})
    store.flush()
    registrar.settle()
    assert list(registrar.freed) == [1, 2] and not registrar.has_work
    store.sock.shutdown(socket.SHUT_RDWR)
    registrar.settle()
    assert registrar.lost


def hear(store: DescriptorStream) -> dict[str, Any]:
    """Return the next message of the process."""
    select.select([store.sock], [], [], 20)
    (found,) = store.read() or []
    return found


def say(store: DescriptorStream, *messages: dict[str, Any]) -> None:
    for message in messages:
        store.queue(message)
    assert store.flush()


def test_who_waits_for_a_long_answer_keeps_nobody_waiting(pair: Pair) -> None:
    """Each gets its own answer, whoever reads it; and what finalizers say goes out meanwhile."""
    registrar, store = pair
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(registrar.ask, "send")
        first = hear(store)
        registrar.let_go(7)
        assert hear(store) == {"t": "let_go", "segments": [7], "descriptors": []}
        short = threads.submit(registrar.ask, "grant")
        say(store, {"t": "ok", "n": hear(store)["n"], "granted": 5})
        assert short.result(20)[0]["granted"] == 5 and not long.done()
        with registrar._lock:  # nobody else can read now: this thread reads the answer of the other one
            say(store, {"t": "ok", "n": first["n"], "to": []})
            registrar._receive(registrar._stream)  # type: ignore[arg-type]
        assert long.result(20)[0]["to"] == []
    assert not registrar._questions._open


@pytest.fixture
def shield() -> Iterator[None]:
    """Ctrl-C is held back on the main thread where it would do harm."""
    made = Shield()
    made.install()
    yield
    made.uninstall()


def press() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.usefixtures("shield")
def test_ctrl_c_while_a_store_lets_nobody_in(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(store_path(str(tmp_path), 1))
        listener.listen()

        def stand_still() -> None:
            with listener.accept()[0] as caller:
                assert caller.recv(1)
                press()
                while caller.recv(256):
                    pass  # until it has gone away

        standing = threads.submit(stand_still)
        with pytest.raises(KeyboardInterrupt) as caught:
            Registrar(str(tmp_path), b"s" * 32, 1).connect()
        assert caught.value.__context__ is None, "its time was not over"
        standing.result(20)


@pytest.mark.usefixtures("shield")
def test_an_interrupted_question_is_undone_and_leaves_no_answer_for_the_next(pair: Pair) -> None:
    registrar, store = pair
    asked: list[int] = []

    def interrupt() -> None:
        asked.append(hear(store)["n"])
        press()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            registrar.ask("take", segment=3)
        next_one = threads.submit(registrar.ask, "take", segment=4)
        number = hear(store)["n"]
        say(store, {"t": "ok", "n": asked[0], "taken": 3}, {"t": "ok", "n": number, "taken": 4})
        assert next_one.result(20)[0]["taken"] == 4
    assert hear(store)["segments"] == [3], "what it was given by the first answer it does not hold"

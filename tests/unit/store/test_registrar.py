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
from typing import TypeVar, cast

import msgspec
import pytest

from meshrt.errors import MeshError, ProtocolError, ReferenceLost, StoreTimeout
from meshrt.store import registrar as module
from meshrt.store.messages import (
    FROM_PROCESS,
    Deliver,
    Delivered,
    Fetched,
    Freed,
    FromProcess,
    GiveBack,
    Grant,
    Granted,
    LetGo,
    Publish,
    Published,
    Share,
    Take,
    Taken,
    ToProcess,
)
from meshrt.store.protocol import DescriptorStream, Incoming, store_path
from meshrt.store.registrar import Registrar
from meshrt.transport.interrupts import Shield
from tests.support.control import raw_frame
from tests.support.waiting import wait_until

Pair = tuple[Registrar, DescriptorStream]
SHARE = Share(5, 1, 0, 4096, "put", "", False, [7])


def take(registrar: Registrar, segment: int = 3) -> Taken:
    return registrar.ask(lambda number: Take(number, segment), Taken)


def grant(registrar: Registrar, size: int = 1) -> Granted:
    return registrar.ask(lambda number: Grant(number, size), Granted)


def deliver(registrar: Registrar) -> Delivered:
    return registrar.ask(lambda number: Deliver(number, [], []), Delivered)


def publish(registrar: Registrar, chunk: int, descriptor: int) -> Published:
    return registrar.ask(lambda number: Publish(number, chunk, 4096), Published, send=[descriptor])


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
    registrar.tell_later(GiveBack(4096))
    registrar.tell_later(GiveBack(4096))
    assert stream.unsent and not registrar.lost
    told = all_told(registrar, store)
    assert [message.size for message in told if isinstance(message, GiveBack)] == [4096, 4096]
    assert all(message == LetGo([5]) for message in told if not isinstance(message, GiveBack))


def all_told(registrar: Registrar, store: DescriptorStream) -> list[FromProcess]:
    """Return what the store reads when it reads everything; nothing comes with it."""
    told: list[Incoming[FromProcess]] = []
    while more := store.read(FROM_PROCESS):
        told += more
        registrar.settle()
    assert not any(descriptors for _, descriptors in told)
    return [message for message, _ in told]


def assert_answered(registrar: Registrar, store: DescriptorStream) -> None:
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(take, registrar)
        say(store, Taken(hear(store, Take).id, 3))
        assert asking.result(20).segment == 3


def tell_without_end(registrar: Registrar, numbers: Iterator[int]) -> None:
    for number in numbers:
        registrar.tell(msgspec.structs.replace(SHARE, segment=number, site="x" * 1000))


def test_a_store_that_was_told_in_vain_is_told_when_it_reads_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    registrar, store = pair
    numbers = itertools.count()
    with monkeypatch.context() as impatient:
        impatient.setattr(module, "_PATIENCE", 0.01)
        with pytest.raises(StoreTimeout, match="pid 1"):
            tell_without_end(registrar, numbers)
    assert not registrar.lost
    told = all_told(registrar, store)
    assert [message.segment for message in told if isinstance(message, Share)] == list(range(next(numbers)))
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
            registrar.tell(SHARE)
        with pytest.raises(StoreTimeout):
            grant(registrar)
    assert len(waits) == 1 and len(registrar._stream.unsent) == unsent  # type: ignore[union-attr]
    all_told(registrar, store)
    registrar.tell(SHARE)
    assert hear(store, Share) == SHARE, "it has read all, and owes nothing: it is not mute"


@pytest.mark.parametrize("unread", [False, True])
def test_a_store_that_has_ended_is_lost_whether_it_has_read_all_or_not(unread: bool, pair: Pair) -> None:
    registrar, store = pair
    if unread:  # or else the socket says that its other end has gone, and no more
        registrar.tell(SHARE)
    store.close()
    with pytest.raises(ReferenceLost):
        grant(registrar)
    assert registrar.lost
    with pytest.raises(ReferenceLost):
        registrar.tell(SHARE)


@pytest.mark.parametrize("unread", [False, True])
def test_a_store_that_ends_while_it_is_dialled_is_lost(unread: bool, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(store_path(str(tmp_path), 1))
        listener.listen()
        dialling = threads.submit(grant, Registrar(str(tmp_path), b"s" * 32, 1))
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
        grant(registrar)


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
            publish(registrar, 1, asked)
        os.close(asked)
    assert not registrar.lost and len(opened("asked")) == 1
    told: list[Incoming[FromProcess]] = []
    while reads and (more := store.read(FROM_PROCESS)):
        told += more
        registrar.settle()
    if reads:
        message, descriptors = told[-1]
        assert isinstance(message, Publish) and descriptors == opened("asked")
        say(store, Published(message.id))
        assert_answered(registrar, store)
        os.close(descriptors[0])
        with pytest.raises(OSError, match="Bad file"):
            publish(registrar, 2, -1)
        assert_answered(registrar, store)
        assert registrar._questions.owed == 0, "nor was it asked what could not be queued"
    registrar.close()
    assert opened("asked") == []


def test_one_question_that_is_not_answered_makes_no_store_mute(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it while it speaks to others; it is when it has spoken to nobody, until it answers that question."""
    registrar, store = pair
    with ThreadPoolExecutor(1) as threads:
        for speaks in (True, False):
            unanswered = threads.submit(deliver, registrar)
            number = hear(store, Deliver).id
            if speaks:
                say(store, Freed([1]))
                wait_until(lambda: registrar.freed, 20, "it is heard")
            with monkeypatch.context() as patch:
                patch.setattr(module, "_PATIENCE", 0.0)
                with pytest.raises(StoreTimeout):
                    unanswered.result(20)
            if speaks:
                assert_answered(registrar, store)
    with pytest.raises(StoreTimeout):
        grant(registrar)
    registrar.tell(SHARE)
    assert hear(store, Share) == SHARE, "it was not waited for to read"
    say(store, Delivered(number, [], []))
    assert_answered(registrar, store)


def test_a_store_that_a_tick_has_reached_again_is_asked(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    registrar, store = pair
    stream, registrar._stream = registrar._stream, None

    def stands_still(*_arguments: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(module, "dial", stands_still)
    with pytest.raises(StoreTimeout):
        grant(registrar)
    registrar.let_go(5)
    monkeypatch.setattr(module, "dial", lambda *_arguments: (stream, []))
    registrar.tend()
    assert hear(store, LetGo).segments == [5]
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
    store.queue(Freed([1, 2]))
    store.flush()
    registrar.settle()
    assert list(registrar.freed) == [1, 2] and not registrar.has_work
    cast(socket.socket, store.sock).shutdown(socket.SHUT_RDWR)
    registrar.settle()
    assert registrar.lost


M = TypeVar("M", bound=FromProcess)


def test_a_store_that_says_nonsense_is_lost(pair: Pair) -> None:
    registrar, store = pair
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(grant, registrar)
        hear(store, Grant)
        store.sock.send(raw_frame({"t": "granted", "id": 1, "size": "much"}))
        with pytest.raises(ProtocolError, match="Expected `int`, got `str`"):
            asking.result(20)
    with pytest.raises(ReferenceLost):
        grant(registrar)


def hear(store: DescriptorStream, expected: type[M]) -> M:
    """Return the next message of the process."""
    select.select([store.sock], [], [], 20)
    ((found, _),) = store.read(FROM_PROCESS) or []
    assert isinstance(found, expected)
    return found


def say(store: DescriptorStream, *messages: ToProcess) -> None:
    for message in messages:
        store.queue(message)
    assert store.flush()


def test_who_waits_for_a_long_answer_keeps_nobody_waiting(pair: Pair) -> None:
    """Each gets its own answer, whoever reads it; and what finalizers say goes out meanwhile."""
    registrar, store = pair
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(deliver, registrar)
        first = hear(store, Deliver)
        registrar.let_go(7)
        assert hear(store, LetGo) == LetGo([7])
        short = threads.submit(grant, registrar, 5)
        say(store, Granted(hear(store, Grant).id, 5))
        assert short.result(20).size == 5 and not long.done()
        with registrar._lock:  # nobody else can read now: this thread reads the answer of the other one
            say(store, Delivered(first.id, [], []))
            registrar._receive(registrar._stream)  # type: ignore[arg-type]
        assert long.result(20).to == []
    assert len(registrar._questions) == 0


def test_an_answer_of_another_kind_is_an_error_and_gives_nothing(pair: Pair) -> None:
    """What it has given is given back, and its descriptors are closed."""
    registrar, store = pair
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(grant, registrar)
        say(store, Taken(hear(store, Grant).id, 3))
        with pytest.raises(ProtocolError, match="unexpected answer of the store: Taken"):
            asking.result(20)
        assert hear(store, LetGo) == LetGo([3])
        asking = threads.submit(grant, registrar)
        file = os.memfd_create("answered")
        store.queue_with(Fetched(hear(store, Grant).id, 4096), [file])
        os.close(file)
        assert store.flush()
        with pytest.raises(ProtocolError, match="Fetched"):
            asking.result(20)
    assert opened("answered") == []
    assert_answered(registrar, store)


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
        asked.append(hear(store, Take).id)
        press()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            take(registrar, 3)
        next_one = threads.submit(take, registrar, 4)
        number = hear(store, Take).id
        say(store, Taken(asked[0], 3), Taken(number, 4))
        assert next_one.result(20).segment == 4
    assert hear(store, LetGo).segments == [3], "what it was given by the first answer it does not hold"

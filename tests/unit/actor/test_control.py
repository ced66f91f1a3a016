"""The control thread of a rank: who is let in, what is served, and in which order."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from meshrt.actor.control import ControlThread
from meshrt.mesh.invitations import make_certificate
from meshrt.transport.dataport import ACCEPTED
from meshrt.transport.dropping import EVENT_BYTES, WAIT_BYTES
from meshrt.transport.link import Link
from meshrt.transport.secured import SecureSocket
from meshrt.wire.control import control_frame
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import ROLE_DATA, ROLE_TOOL, ClientHandshake
from meshrt.wire.messages import CONTROL
from meshrt.wire.tree import Answer, Certified, Event
from tests.support.control import fields_of, raw_frame
from tests.support.limits import no_descriptor_is_free
from tests.support.waiting import wait_until

SECRET = b"s" * 32
UNUSED: Any = None


class Rank:
    """A control thread, the agent's end of its link, and what it did."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(200)
        ours, self.rank_end = socket.socketpair()
        self.agent = Link(ours)
        self.done: list[Any] = []
        self.links: list[Link] = []
        operations: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "echo": lambda body: body,
            "fail": self._fail,
        }
        self.control = ControlThread(
            self.listener, self.rank_end, SECRET, "m/0/", self._deliver, self._stop, operations
        )
        self.clients: list[socket.socket] = []

    @staticmethod
    def _fail(body: dict[str, Any]) -> None:
        raise ValueError("no such thing")

    def _deliver(self, actor: str, link: Link, leftover: bytes) -> None:
        self.links.append(link)
        self.done.append((actor, leftover))

    def _stop(self, drain: bool, why: str) -> None:
        self.done.append(("stop", drain))

    def start(self) -> None:
        self.control.start(None, UNUSED)

    def dial(self, endpoint: str = "m/0/actor", secret: bytes = SECRET, role: int = ROLE_DATA) -> tuple[Any, Any]:
        """Connect and say hello."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.clients.append(sock)
        sock.settimeout(10)
        sock.connect(self.path)
        handshake = ClientHandshake(secret, role, endpoint)
        sock.sendall(handshake.hello())
        return sock, handshake

    def tell(self, message: dict[str, Any]) -> None:
        """Send as the agent does."""
        assert self.agent.send([raw_frame(message)])

    def told(self, count: int) -> list[dict[str, Any]]:
        """Return what the rank sent to its agent."""
        frames: list[Frame] = []

        def enough() -> bool:
            frames.extend(self.agent.read() or ())
            return len(frames) >= count

        wait_until(enough)
        return [fields_of(frame.payload) for frame in frames]

    def end(self) -> None:
        if self.control.thread.is_alive():
            self.control.close()
        self.control._entrance.close()
        for sock in (*self.clients, self.rank_end, self.listener):
            sock.close()
        for link in (*self.links, self.agent):
            link.close()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    made = Rank(tmp_path / "0")
    yield made
    made.end()


def refused(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_caller_that_proves_the_secret_goes_to_its_actor(rank: Rank) -> None:
    rank.start()
    sock, handshake = rank.dial("m/0/some/actor")
    sock.sendall(handshake.receive_data(sock.recv(100)) + b"behind it")
    wait_until(lambda: rank.done)
    assert rank.done == [("some/actor", b"behind it")]


@pytest.mark.parametrize(
    "options",
    [{"endpoint": "m/1/actor"}, {"endpoint": "other/0/actor"}, {"role": ROLE_TOOL}],
    ids=["other rank", "other mesh", "other role"],
)
def test_a_caller_for_somebody_else_is_refused(rank: Rank, options: dict[str, Any]) -> None:
    rank.start()
    sock, _ = rank.dial(**options)
    while sock.recv(100):
        pass
    assert not rank.done


def test_callers_of_other_machines_are_let_in_once_the_certificate_is_known(rank: Rank) -> None:
    """It comes while the rank runs; connections before it are closed."""
    ours, rank.control._door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    rank.clients += [ours, rank.control._door]
    rank.start()
    certificate = make_certificate()
    early, theirs = socket.socketpair()
    with early, theirs:
        socket.send_fds(ours, [ACCEPTED.pack(time.monotonic())], [theirs.fileno()])
        theirs.close()
        early.settimeout(10)
        assert early.recv(1) == b""
    assert rank.agent.send([control_frame(Certified(certificate))])
    wait_until(lambda: rank.control.certificate == certificate)
    with socket.create_server(("127.0.0.1", 0)) as port:
        dialled = socket.create_connection(port.getsockname())
        accepted, _ = port.accept()
    with accepted:
        socket.send_fds(ours, [ACCEPTED.pack(time.monotonic())], [accepted.fileno()])
    caller, handshake = (
        SecureSocket(dialled, certificate, server=False),
        ClientHandshake(SECRET, ROLE_DATA, "m/0/a"),
    )
    caller.send(handshake.hello())

    def proved() -> bool:
        with contextlib.suppress(BlockingIOError):
            caller.send(handshake.receive_data(caller.recv(1000)) or b"")
        return bool(rank.done)

    wait_until(proved)
    assert rank.done == [("a", b"")]
    caller.close()


def test_a_connection_without_a_free_descriptor_is_refused_alone(rank: Rank, caplog: pytest.LogCaptureFixture) -> None:
    ours, rank.control._door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    rank.clients += [ours, rank.control._door]
    rank.start()
    for is_full in (True, False):
        early, theirs = socket.socketpair()
        with early, theirs, no_descriptor_is_free() if is_full else contextlib.nullcontext():
            socket.send_fds(ours, [ACCEPTED.pack(time.monotonic())], [theirs.fileno()])
            wait_until(lambda: "no descriptor is free (see ulimit -n)" in caplog.text)
            theirs.close()  # which makes room for one
            early.settimeout(10)
            assert early.recv(1) == b""  # there is no certificate


def test_operations_are_answered_with_a_result_or_a_refusal(rank: Rank) -> None:
    rank.start()
    rank.tell({"t": "op", "id": 1, "op": "echo", "body": {"a": 1}})
    rank.tell({"t": "op", "id": 2, "op": "fail", "body": {}})
    rank.tell({"t": "op", "id": 3, "op": "unknown", "body": {}})
    rank.tell({"t": "op", "id": 0, "op": "echo", "body": {}})
    rank.tell({"t": "op", "id": 4, "op": "echo", "body": {}})
    answers = rank.told(4)
    assert [(answer["t"], answer["id"]) for answer in answers] == [("ok", 1), ("no", 2), ("no", 3), ("ok", 4)]
    assert answers[0]["body"] == {"a": 1}
    assert answers[1]["why"] == "ValueError: no such thing" and "'unknown'" in answers[2]["why"]


def test_nonsense_from_the_agent_does_not_end_it(rank: Rank) -> None:
    rank.start()
    rank.tell({"t": "whatever"})
    rank.tell({"t": "ok", "id": 77, "body": {}})
    rank.tell({"t": "op"})
    rank.tell({"t": "op", "id": 1, "op": "echo", "body": {}})
    assert rank.told(1)[-1]["id"] == 1


def test_requests_to_the_root_find_their_answers(rank: Rank) -> None:
    rank.start()
    answers: dict[str, Any] = {}
    numbers = [
        rank.control.requests.ask(
            name,
            {},
            lambda body, error, name=name: answers.update({name: (body, str(error or ""))}),  # type: ignore[misc]
        )
        for name in ("a", "b", "forgotten")
    ]
    rank.control.requests.forget(numbers[2])
    assert [message["op"] for message in rank.told(3)] == ["a", "b", "forgotten"]
    rank.tell({"t": "no", "id": numbers[1], "why": "not allowed"})
    rank.tell({"t": "ok", "id": numbers[2], "body": {}})
    rank.tell({"t": "ok", "id": numbers[0], "body": {"x": 1}})
    wait_until(lambda: len(answers) == 2)
    assert answers == {"a": ({"x": 1}, ""), "b": (None, "not allowed")}


def test_a_slow_agent_gets_everything_in_the_end(rank: Rank) -> None:
    rank.start()
    for number in range(50):
        rank.control.send(Event("big", {"n": number, "x": "x" * 50_000}))
    assert [message["body"]["n"] for message in rank.told(50)] == list(range(50))


@pytest.mark.parametrize("drain", [True, False])
def test_a_proved_caller_is_let_in_before_a_stop_that_was_sent_later(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, drain: bool
) -> None:
    """Driven by hand: both are there when the thread looks, and the stop comes first to its eye."""
    monkeypatch.setattr(rank.control, "thread", threading.Thread(target=lambda: None))
    rank.control.start(None, UNUSED)
    rank.control.thread.join(10)
    sock, handshake = rank.dial()
    for _ in range(2):  # the caller, and its hello
        for key, events in rank.control.selector.select(1):
            if key.fileobj is not rank.rank_end:
                key.data(events)
    sock.sendall(handshake.receive_data(sock.recv(100)) + b"sent before")
    rank.control._on_frame(Frame(CONTROL, None, msgpack.packb({"t": "end", "drain": drain, "why": ""})))
    assert rank.done == ([("actor", b"sent before")] if drain else []) + [("stop", drain)]


def test_what_is_asked_for_soon_is_done_in_order_even_behind_a_failure(rank: Rank) -> None:
    rank.start()
    done: list[int] = []
    for index in range(100):
        rank.control.call_soon(lambda index=index: done.append(index))  # type: ignore[misc]
        if index == 50:
            rank.control.call_soon(lambda: Rank._fail({}))
    rank.control.settle(10)
    assert done == list(range(100))


def test_settle_lets_in_callers_whose_proof_had_come(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driven by hand: the selector of the thread has returned before the proof came."""
    monkeypatch.setattr(rank.control, "thread", threading.Thread(target=lambda: None))
    rank.control.start(None, UNUSED)
    rank.control.thread.join(10)
    sock, handshake = rank.dial()

    def look() -> None:
        for key, events in rank.control.selector.select(1):
            key.data(events)

    look()  # the caller
    look()  # its hello
    sock.sendall(handshake.receive_data(sock.recv(100)))
    settled = threading.Thread(target=rank.control.settle, args=(10,))
    settled.start()
    wait_until(lambda: rank.control._timers._new)
    while settled.is_alive():
        for function in rank.control._timers.due():
            function()
        settled.join(0.5)
        if settled.is_alive():
            look()
    assert rank.done == [("actor", b"")]


def test_what_is_asked_for_later_is_done_when_its_time_has_come(rank: Rank) -> None:
    rank.start()
    done: list[str] = []
    rank.control.call_later(0.02, lambda: done.append("later"))
    rank.control.call_later(600, lambda: done.append("never"))
    rank.control.call_soon(lambda: done.append("soon"))
    wait_until(lambda: "later" in done)
    assert done == ["soon", "later"]


def test_close_ends_the_thread_and_the_socket(rank: Rank) -> None:
    rank.start()
    unproved, _ = rank.dial()
    unproved.recv(100)
    rank.control.close()
    assert not rank.control.thread.is_alive()
    assert refused(unproved)
    with pytest.raises(ConnectionRefusedError):
        rank.dial()


def test_it_is_not_closed_while_another_thread_is_about_to_wake_it(rank: Rank) -> None:
    """The number of its descriptor may be that of another file then."""
    rank.start()
    closing = threading.Thread(target=rank.control.close)
    with rank.control._waking:
        closing.start()
        wait_until(lambda: rank.control._closing)
        rank.control._wake()
        rank.control.thread.join(10)
        os.eventfd_write(rank.control._wake_fd, 1)
    closing.join(10)
    rank.control._wake()
    assert rank.control._wake_fd == -1


def test_events_for_an_agent_that_does_not_read_are_bounded_and_counted(rank: Rank) -> None:
    rank.start()
    sent = 200
    for number in range(sent):
        rank.control.send(Event("unhandled", {"number": number, "text": "x" * 100_000}))
        rank.control.send(Answer(number, {}))
    link: Any = rank.control._link
    assert link.backlog_bytes < EVENT_BYTES + (1 << 20)
    told: list[dict[str, Any]] = []
    while not any(message["t"] == "dropped" for message in told):
        told += rank.told(1)
    assert [message["id"] for message in told if message["t"] == "ok"] == list(range(sent)), "answers are never lost"
    came = [message["body"]["number"] for message in told if message["t"] == "ev"]
    assert came == list(range(len(came))) and came
    (dropped,) = [message for message in told if message["t"] == "dropped"]
    assert dropped == {"t": "dropped", "events": {"unhandled": sent - len(came)}}


def test_a_thread_of_the_user_waits_for_an_agent_that_does_not_read(rank: Rank) -> None:
    """What must not be lost takes no memory without end."""
    rank.start()
    sent = WAIT_BYTES // 1_000_000 + 20

    def send() -> None:
        for number in range(sent):
            rank.control.send(Answer(number, {"text": "x" * 1_000_000}))

    sender = threading.Thread(target=send)
    sender.start()
    link: Any = rank.control._link
    wait_until(lambda: link.backlog_bytes > WAIT_BYTES)
    assert sender.is_alive()
    told = rank.told(sent)
    sender.join(10)
    assert [message["id"] for message in told] == list(range(sent)) and not sender.is_alive()
    wait_until(lambda: link.backlog_bytes == 0)


def test_numbers_that_user_code_has_for_its_own_files_are_left_alone(rank: Rank, tmp_path: Path) -> None:
    """It has closed all descriptors, and opened files: one has the number that the control thread waits with."""
    lost = threading.Event()
    rank.control._agent_lost = lost.set
    rank.start()
    number = rank.control.selector.fileno()
    with (tmp_path / "file").open("w") as file:
        os.dup2(file.fileno(), number)
        rank.control._wake()
        assert lost.wait(10)
        rank.control.thread.join(10)
        assert os.path.samestat(os.fstat(number), os.fstat(file.fileno()))

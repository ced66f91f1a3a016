"""What processes say to an agent that does not know them yet: those that join, import, or are on other machines."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from meshrt.engine.joining import invited_by
from meshrt.errors import ProtocolError, UsageError
from meshrt.host.child import Birth, Child, Plumbing
from meshrt.host.code.relay import CodeRelay, Kept, code_path
from meshrt.host.meeting import Meeting
from meshrt.host.output import RankLog
from meshrt.transport.acceptor import SelectorReaders
from meshrt.transport.dataport import DataPort
from meshrt.wire.addresses import HostAddress
from meshrt.wire.code import AskCode, Code
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_CODE, ClientHandshake, Secret
from meshrt.wire.meeting import FROM_MEETING, AskToJoin, Welcome
from meshrt.wire.preface import HOST_PROOF, PREFACE_MAX, PrefaceReader, host_name, preface
from meshrt.wire.tree import Invited
from tests.fuzz.mutating import packed
from tests.fuzz.running import BAIT, Target
from tests.support.control import raw_frame

__all__ = ["TARGETS", "messages_of", "tell"]

_SECRET = b"s" * 32
#: Messages of one input, and descriptors that go with one of them, at most.
_MOST, _FILES = 20, 4


def _serve(selector: selectors.BaseSelector) -> None:
    """Do what there is to do, as the loop of an agent does: what is raised here ends the agent."""
    while ready := selector.select(0):
        for key, events in ready:
            key.data(events)


@contextlib.contextmanager
def _agent() -> Iterator[tuple[selectors.BaseSelector, Path]]:
    """Give a selector and a directory. Behind it, no descriptor may be left open."""
    before = len(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory(prefix="mf", dir="/tmp") as folder, selectors.DefaultSelector() as selector:
        yield selector, Path(folder)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    assert len(os.listdir("/proc/self/fd")) == before, "descriptors are left open"


def messages_of(data: bytes) -> list[Any]:
    """Return the messages of an input, or the input itself where it has none."""
    try:
        messages = msgpack.unpackb(data, strict_map_key=False)
    except Exception:
        messages = None
    return messages[:_MOST] if type(messages) is list else [data]


def _frame(message: Any) -> bytes:
    """Return a message as its frame; one that is none: bytes."""
    if isinstance(message, dict):
        return raw_frame(message)
    return message if isinstance(message, bytes) else packed(message)


def _join(data: bytes) -> None:
    """Whatever one process says, the next one gets the rank of which it is not."""
    with _agent() as (selector, folder):
        address = HostAddress(0, os.getpid(), os.fsencode(folder))
        births = [
            Birth("m", "run", rank, ["n"], [2], {}, "0", address, Secret(_SECRET), "host", [], 0, -1, "/r", "", [])
            for rank in range(2)
        ]
        born: list[Child] = []

        def prepare(birth: Birth) -> tuple[Child, Plumbing]:
            return Child.prepare(birth, RankLog(Path(), print), joined=True)

        path = str(folder / "meeting")
        meeting = Meeting(selector, path, births, prepare, lambda child, _pid: born.append(child), lambda _s, _do: None)
        try:
            with _dialled(path) as sock:
                for message in messages_of(data):
                    tell(sock, message)
                    _serve(selector)
            _serve(selector)
            with _dialled(path) as sock:
                sock.sendall(control_frame(AskToJoin(-1)))
                _serve(selector)
                answer, files, _, _ = socket.recv_fds(sock, 1 << 16, 8, socket.MSG_DONTWAIT)
                for file in files:
                    os.close(file)
                (frame,) = control_decoder().receive_data(answer)
                assert isinstance(FROM_MEETING.decode(frame.payload), Welcome), frame
        finally:
            meeting.close()
            for child in born:
                child.close()


def tell(sock: socket.socket, message: Any) -> None:
    """Say something, with as many descriptors as it asks for: files, or each other one a socket if they are even."""
    count = message.pop("fds", 0) if isinstance(message, dict) else 0
    files = [os.memfd_create("fuzz") for _ in range(min(count, _FILES))] if type(count) is int and count > 0 else []
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.suppress(OSError):  # it has hung up
        given = [theirs.fileno() if number % 2 > len(files) % 2 else file for number, file in enumerate(files)]
        socket.send_fds(sock, [_frame(message) or b"\0"], given, socket.MSG_DONTWAIT)
    for file in files:
        os.close(file)


def _dialled(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return sock


def _join_examples() -> list[bytes]:
    several: list[list[Any]] = [
        [{"t": "join", "rank": 0, "fds": 2}, {"t": "ready"}],
        [{"t": "join", "rank": -1, "fds": 1}, {"t": "ready"}],
        [{"t": "join", "rank": 1}, {"t": "ready", "fds": 2}],
        [{"t": "join", "rank": 1, "fds": 1}, {"t": "ready", "fds": 1}],
        [{"t": "join", "rank": 1, "fds": 2}, {"t": "join", "rank": 1}],
    ]
    return [*map(packed, several), BAIT]


def _ask(data: bytes) -> None:
    """Whatever one process asks for, the next one is answered."""
    with _agent() as (selector, folder):
        asked: list[AskCode] = []
        kept = Kept(asked.append, lambda _line: None, "n1", lambda: 0.0)
        path = code_path(str(folder), os.getpid())
        CodeRelay(selector, path, _SECRET, kept, lambda _seconds, _do: None)  # the selector refers to it
        with _proved(path, selector) as sock:
            for message in messages_of(data):
                with contextlib.suppress(OSError):
                    sock.send(_frame(message), socket.MSG_DONTWAIT)
                _serve(selector)
                while asked:
                    kept.answered(Code(asked.pop().id, "absent"))
                    _serve(selector)
        with _proved(path, selector) as sock:
            sock.sendall(control_frame(AskCode(77, "a.module")))
            _serve(selector)
            while asked:
                kept.answered(Code(asked.pop().id, "absent"))
            sock.settimeout(10)
            assert b"absent" in sock.recv(1 << 16)
        _serve(selector)


@contextlib.contextmanager
def _proved(path: str, selector: selectors.BaseSelector) -> Iterator[socket.socket]:
    with _dialled(path) as sock:
        handshake = ClientHandshake(_SECRET, ROLE_CODE, "code")
        sock.sendall(handshake.hello())
        while not handshake.done:
            _serve(selector)
            sock.sendall(handshake.receive_data(sock.recv(256)))
        _serve(selector)
        yield sock


def _ask_examples() -> list[bytes]:
    several: list[list[Any]] = [
        [{"t": "code?", "id": 1, "module": "a.b"}, {"t": "code?", "id": 2, "module": "a.b", "file": "x", "offset": 5}],
        [{"t": "code?", "id": 1, "module": "", "file": "/x.py", "known": "00"}],
    ]
    return [*map(packed, several), BAIT]


def _prefaces(data: bytes) -> None:
    """However it comes, the same name is read or it is refused, and what follows is left to be read by its owner."""
    outcomes = []
    for most in (1, 7, PREFACE_MAX):
        reader, at, refused = PrefaceReader(), 0, False
        while reader.missing and at < len(data) and not refused:
            piece = data[at : at + min(most, reader.missing)]
            at += len(piece)
            try:
                reader.receive_data(piece)
            except ProtocolError:
                refused = True
        outcomes.append((reader.name, refused, not reader.missing, 0 if refused else at))
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    name, refused, complete, _ = outcomes[0]
    assert bool(name) == (complete and not refused)
    _ported(data, name)


def _ported(data: bytes, name: str) -> None:
    with _agent() as (selector, folder):
        path = str(folder / "port")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen()
        given: list[tuple[str, socket.socket]] = []
        port = DataPort(
            SelectorReaders(selector), listener, lambda *each: given.append(each[:2]), lambda _seconds, _do: None
        )
        with _dialled(path) as sock:
            with contextlib.suppress(OSError):
                sock.send(data, socket.MSG_DONTWAIT)
            _serve(selector)
            assert [each for each, _ in given] == ([name] if name else [])
            for _, taken in given:
                taken.close()
        port.close()


def _preface_examples() -> list[bytes]:
    names = ["agent/1f", "relay/a1b2", "rank/m1/3", "store", host_name(31, 4711) + "0" * HOST_PROOF]
    return [preface(name) + rest for name in names for rest in (b"", b"\x16\x03\x01")]


def _invited(data: bytes) -> None:
    assert isinstance(invited_by(data), Invited)


def _invitations() -> list[bytes]:
    one = {
        "t": "invited",
        "name": "agent/1f",
        "ports": [["127.0.0.1", 40_000]],
        "secret": b"s",
        "certificate": [b"", b""],
    }
    return [raw_frame(one), BAIT]


TARGETS = [
    Target("joining", _join, _join_examples, (), "msgpack", count=600),
    Target("code", _ask, _ask_examples, (), "msgpack", count=300),
    Target("preface", _prefaces, _preface_examples, count=600),
    Target("invitation", _invited, _invitations, (UsageError,), count=2000),
]

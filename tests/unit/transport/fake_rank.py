"""A rank as the driver sees it: a listening socket that is served by hand, one step at a time, on the test's thread."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from meshrt.hooks.fate import Fate
from meshrt.transport.driver import Driver
from meshrt.transport.outlink import Loss
from meshrt.wire.addresses import HostAddress, RankAddress
from meshrt.wire.frames import Frame, FrameDecoder, split_frames
from meshrt.wire.handshake import ROLE_DATA, ServerHandshake
from meshrt.wire.messages import CALL, RESULT
from tests.support.waiting import wait_until

__all__ = [
    "KEY",
    "SECRET",
    "Answers",
    "FakeRank",
    "FakeTree",
    "Listen",
    "address",
    "asked",
    "call",
    "open_link",
    "pump",
    "reaches",
]

SECRET = b"s" * 32
#: Of the link to the rank.
KEY = ("m", 0, "actor")


class FakeTree:
    """The control tree: ranks start and end when the test says so."""

    def __init__(self) -> None:
        self.births: list[Callable[[HostAddress | None], None]] = []
        self.watchers: dict[tuple[str, int], list[Callable[[Fate], None]]] = {}
        #: What is to be called after a while: by the test.
        self.later: list[Callable[[], None]] = []
        #: What `switch` was told last, and how often.
        self.background = False
        self.switches = 0

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[HostAddress | None], None]) -> None:
        self.births.append(callback)

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        self.watchers.setdefault((mesh_id, rank), []).append(callback)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.append(function)

    def switch(self, on: bool) -> None:
        self.background = on
        self.switches += 1

    def bear(self, host: HostAddress | None = None) -> None:
        """Every rank that was asked for listens now, on that host."""
        while self.births:
            self.births.pop()(host)

    def kill(self, driver: Driver, rank: int, fate: Fate) -> None:
        """Tell of the end of a rank."""
        for callback in self.watchers.pop(("m", rank), []):
            callback(fate)
        driver.lost.fail_pending()


def address(path: str) -> RankAddress:
    """The address of a rank whose socket is at ``path``, whatever that is called."""
    return AnyPath(HostAddress(0, 0, os.fsencode(path)), "m", 0)


class AnyPath(RankAddress):
    """An address whose directory is the path itself."""

    @property
    def path(self) -> str:
        return os.fsdecode(self.host.directory)


class FakeRank:
    """Listens at a path; `serve` does what has to be done now."""

    def __init__(self, path: Path, secret: bytes = SECRET) -> None:
        self.path = str(path)
        self.address = address(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen()
        self.listener.setblocking(False)
        self.handshake = ServerHandshake(secret, ROLE_DATA)
        self.sock: socket.socket | None = None
        self.decoder = FrameDecoder()
        self.frames: list[Frame] = []

    def serve(self) -> None:
        """Accept, shake hands, read: as far as it goes without waiting."""
        try:
            if self.sock is None:
                self.sock, _ = self.listener.accept()
                self.sock.setblocking(False)
            while data := self.sock.recv(1 << 16):
                if not self.handshake.done:
                    self.sock.sendall(self.handshake.receive_data(data))
                    data = self.handshake.leftover
                self.frames += self.decoder.receive_data(data)
        except BlockingIOError:
            pass

    def send(self, kind: int, header: list[Any], payload: bytes = b"") -> None:
        """Send a message to the caller."""
        assert self.sock is not None
        self.sock.setblocking(True)
        self.sock.sendall(b"".join(split_frames(kind, header, [payload])))
        self.sock.setblocking(False)

    def answer(self, call_id: int) -> None:
        """Answer a call with nothing."""
        self.send(RESULT, [call_id, None])

    def saw_the_end(self) -> bool:
        """Whether the caller has closed its connection; the next one is accepted then."""
        self.serve()
        try:
            if self.sock is None or self.sock.recv(1, socket.MSG_PEEK):
                return False
        except BlockingIOError:
            return False
        self.sock.close()
        self.sock = None
        self.handshake = ServerHandshake(SECRET, ROLE_DATA)
        self.decoder = FrameDecoder()
        return True

    def close(self) -> None:
        """Close the connection and stop listening."""
        if self.sock is not None:
            self.sock.close()
        self.listener.close()


class Answers:
    """A call's receiver: notes what it gets."""

    def __init__(self, expected: int = 1) -> None:
        self.delivered: list[tuple[int, Frame]] = []
        self.lost: list[tuple[int, str, bool]] = []
        #: How often of losses.
        self.told = 0
        self.expected = expected

    @property
    def finished(self) -> bool:
        return len(self.delivered) + len(self.lost) >= self.expected

    def deliver(self, position: int, frame: Frame) -> None:
        self.delivered.append((position, frame))

    def lose(self, losses: Sequence[Loss]) -> None:
        self.told += 1
        self.lost += [(position, fate.kind, sent) for position, fate, sent in losses]


def call(call_id: int, payload: bytes = b"") -> list[Any]:
    return split_frames(CALL, [call_id], [payload])


def open_link(driver: Driver, rank: FakeRank) -> Any:
    """Connect and shake hands."""
    out = driver.link_to(KEY, rank.address)
    pump(driver, rank, lambda: out.handshake is None)
    return out


def pump(driver: Driver, rank: FakeRank, condition: Callable[[], object]) -> None:
    """Serve both ends until ``condition()``."""

    def turn() -> object:
        rank.serve()
        driver.poll_nowait()
        return condition()

    wait_until(turn, 10, "both ends served")


#: Makes a rank that listens.
Listen = Callable[..., FakeRank]


def asked(driver: Driver, listen: Listen) -> tuple[FakeRank, Any, Answers]:
    """Return a rank that one call was sent to, the link to it, and the receiver of the answer."""
    rank = listen()
    out = open_link(driver, rank)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    return rank, out, receiver


def reaches(driver: Driver, rank: FakeRank, out: Any, call_id: int) -> bool:
    """Whether a call is answered by the process that listens now."""
    receiver = Answers()
    driver.send(out, call(call_id), call_id, receiver, 0)
    assert out.fate is None and not receiver.lost
    pump(driver, rank, lambda: rank.frames)
    rank.answer(call_id)
    pump(driver, rank, lambda: receiver.finished)
    return bool(receiver.delivered)

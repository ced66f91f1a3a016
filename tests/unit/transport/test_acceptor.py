"""Connections are accepted; where no descriptor is left they wait, and nothing else does."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshrt.transport.acceptor import Acceptor, SelectorReaders, listening_socket
from meshrt.transport.dataport import DataPort
from meshrt.transport.link import Connection
from meshrt.wire.preface import preface


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as made:
        yield made


def serve(selector: selectors.BaseSelector) -> int:
    """Do what there is to do. Returns how much that was."""
    ready = selector.select(0)
    for key, events in ready:
        key.data(events)
    return len(ready)


def test_no_descriptor_is_left(
    selector: selectors.BaseSelector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside: list[socket.socket] = []
    later: list[Callable[[], None]] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    acceptor = Acceptor(
        SelectorReaders(selector), listener, "a guest", inside.append, lambda _seconds, function: later.append(function)
    )
    acceptor.open()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as guest:
        guest.connect(str(tmp_path / "socket"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free(), limits[1]))
        try:
            for _ in range(3):
                assert serve(selector) == 1 and serve(selector) == 0, "nothing spins"
                assert not inside
                later.pop()()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert serve(selector) == 1 and not inside[0].getblocking() and not later
        assert [record.getMessage() for record in caplog.records] == [
            "a guest cannot be accepted yet: Too many open files"
        ], "said once"
        inside[0].close()
    acceptor.close()
    acceptor.open()  # what was put off comes too late
    assert not selector.get_map()


class Refusing(SelectorReaders):
    """No memory is left to watch a further socket, while ``short``."""

    short = False

    def add_reader(self, sock: Connection, function: Callable[[], object]) -> None:
        if self.short:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().add_reader(sock, function)


def test_a_connection_that_cannot_be_watched_is_closed_and_the_next_one_is_served(
    selector: selectors.BaseSelector, caplog: pytest.LogCaptureFixture
) -> None:
    readers, given = Refusing(selector), list[str]()

    def give(name: str, sock: socket.socket, _accepted: float) -> None:
        given.append(name)
        sock.close()

    listener = socket.create_server(("127.0.0.1", 0))
    port = DataPort(readers, listener, give, lambda *_: None)
    for readers.short, name in [(True, "rank/abc/1"), (False, "rank/abc/2")]:
        with socket.create_connection(listener.getsockname()) as peer:
            peer.sendall(preface(name))
            peer.settimeout(5)
            while serve(selector):
                pass
            with contextlib.suppress(ConnectionResetError):  # what it has said was not read
                assert peer.recv(1) == b""
    assert given == ["rank/abc/2"]
    assert [record.getMessage() for record in caplog.records] == [
        "a peer on another machine cannot be served: No space left on device"
    ]
    port.close()


def test_a_listener_that_cannot_be_watched_again_is_tried_again(
    selector: selectors.BaseSelector, tmp_path: Path
) -> None:
    readers, later = Refusing(selector), list[Callable[[], None]]()
    path = str(tmp_path / "socket")
    acceptor = Acceptor(
        readers, listening_socket(path), "a guest", socket.socket.close, lambda _seconds, each: later.append(each)
    )
    acceptor.open()
    os.unlink(path)
    readers.short = True
    acceptor.listen_again()
    readers.short = False
    later.pop()()
    with socket.socket(socket.AF_UNIX) as guest:
        guest.connect(path)
        assert serve(selector) == 1 and guest.recv(1) == b""
    acceptor.close()


def next_free() -> int:
    """The number of the next descriptor."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number

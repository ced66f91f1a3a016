"""Connections are accepted; where no descriptor is left they wait, and nothing else does."""

from __future__ import annotations

import os
import resource
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshrt.transport.acceptor import Acceptor, SelectorReaders


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
            "a guest cannot be accepted, and waits: Too many open files"
        ], "said once"
        inside[0].close()
    acceptor.close()
    acceptor.open()  # what was put off comes too late
    assert not selector.get_map()


def next_free() -> int:
    """The number of the next descriptor."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.debug.dap.router import connection as module
from meshrt.debug.dap.router.connection import Connection
from meshrt.debug.dap.wire import MessageDecoder, encode, event
from meshrt.transport.refusals import Refusals


class Transport:
    """An IDE that reads nothing."""

    def __init__(self) -> None:
        self.written = b""
        self.ended = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return self.ended.is_set()

    def abort(self) -> None:
        self.ended.set()

    close = abort


def connections(count: int) -> tuple[list[Any], list[Transport]]:
    sessions: Any = SimpleNamespace(
        token="t", channels=None, program=None, unproved={}, refusals=Refusals(), over=False, ending=set()
    )
    made, transports = [], []
    for _ in range(count):
        made.append(Connection(sessions))
        transports.append(Transport())
        made[-1].connection_made(transports[-1])
    return made, transports


def test_an_ide_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACKLOG_MAX", 1000)

    async def scene() -> None:
        (connection,), (transport,) = connections(1)
        connection.write(event("output", output="x" * 500))
        assert not transport.ended.is_set()
        connection.write(event("output", output="x" * 500))
        assert transport.ended.is_set()
        # It is gone: nothing is kept for it any more.
        written = len(transport.written)
        connection.write(event("output", output="x"))
        assert len(transport.written) == written
        connection.connection_lost(None)

    asyncio.run(scene())


def test_who_shows_nothing_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNPROVED_MAX", 2)

    async def scene() -> None:
        (first, second, third), (one, two, three) = connections(3)
        assert [each.ended.is_set() for each in (one, two, three)] == [True, False, False]
        for connection in (first, second, third):
            connection.connection_lost(None)

    asyncio.run(scene())


def test_who_shows_nothing_has_not_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNPROVED_SECONDS", 0.0)

    async def scene() -> None:
        (connection,), (transport,) = connections(1)
        async with asyncio.timeout(30):
            await transport.ended.wait()
        connection.connection_lost(None)

    asyncio.run(scene())


def test_before_the_token_little_is_read() -> None:
    async def scene() -> None:
        (connection,), (transport,) = connections(1)
        connection.data_received(encode({"seq": 1, "type": "request", "command": "initialize"}))
        (answer,) = MessageDecoder().receive_data(transport.written)
        assert answer["success"] and answer["seq"] == 1
        connection.data_received(b"Content-Length: 70000\r\n\r\n")
        assert transport.ended.is_set()
        connection.connection_lost(None)

    asyncio.run(scene())

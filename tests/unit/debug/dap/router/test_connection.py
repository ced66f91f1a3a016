from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

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
        self.reads = True

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def get_extra_info(self, _name: str) -> None:
        """Its socket."""

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.ended.is_set()

    def abort(self) -> None:
        self.ended.set()

    close = abort


class Admits:
    """Lets everybody in but those whom it has a problem with, the first ones first."""

    def __init__(self, *problems: str) -> None:
        self._problems = list(problems)

    def ask(self, _sock: object, answer: Callable[[str], None]) -> None:
        answer(self._problems.pop(0) if self._problems else "")


def connections(count: int, *problems: str) -> tuple[list[Any], list[Transport]]:
    sessions: Any = SimpleNamespace(
        token="t",
        channels=None,
        unproved={},
        refusals=Refusals(),
        over=False,
        ending=set(),
        admission=Admits(*problems),
    )
    made, transports = [], []
    for _ in range(count):
        made.append(Connection(sessions))
        transports.append(Transport())
        made[-1].connection_made(cast(asyncio.Transport, transports[-1]))
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


@pytest.mark.parametrize(
    ("key", "value"),
    [("pathFormat", "uri"), ("linesStartAt1", False), ("columnsStartAt1", False), ("pathFormat", 5)],
)
def test_conventions_that_no_engine_has_are_refused(key: str, value: object) -> None:
    async def scene() -> None:
        (connection,), (transport,) = connections(1)
        good = {"pathFormat": "path", "linesStartAt1": True, "columnsStartAt1": True}
        asked = {"seq": 1, "type": "request", "command": "initialize"}
        connection.data_received(encode({**asked, "arguments": {**good, "pathFormat": None}}))
        assert not transport.ended.is_set()
        connection.data_received(encode({**asked, "arguments": {**good, key: value}}))
        taken, refused = MessageDecoder().receive_data(transport.written)
        assert taken["success"] and not refused["success"] and transport.ended.is_set()
        expected = f"initialize: {key} is {json.dumps(value)}, which meshrt dap does not support; expected "
        assert refused["message"] == expected + json.dumps(good[key])
        connection.connection_lost(None)

    asyncio.run(scene())


def attach(token: str) -> bytes:
    return encode({"seq": 1, "type": "request", "command": "attach", "arguments": {"meshToken": token}})


def test_other_users_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNPROVED_MAX", 2)

    async def scene() -> None:
        others = ["the peer is a process of another user (uid 65534)"] * 4
        # Some come when there is no room any more, and make none.
        made, transports = connections(10, "", *others, "", *others)
        # Nothing was read of them, and nothing was said to them; the user's own two are there.
        assert [each.ended.is_set() for each in transports] == [False, *[True] * 4] * 2
        assert [each.reads for each in transports] == [True, *[False] * 4] * 2
        assert not any(each.written for each in transports)
        for connection in made:
            connection.connection_lost(None)

    asyncio.run(scene())


def test_a_wrong_token_is_refused_later_and_takes_the_place_of_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNPROVED_MAX", 2)
    monkeypatch.setattr(module, "_DELAY_SECONDS", 0.05)

    async def scene() -> None:
        (first, second), (one, two) = connections(2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        first.data_received(attach("x"))
        second.data_received(attach("x") + attach("t"))
        for transport in (one, two):
            assert not transport.written and not transport.reads and not transport.ended.is_set()
        # Nobody comes in their place until they have been told.
        third, three = Connection(first._sessions), Transport()
        third.connection_made(cast(asyncio.Transport, three))
        assert three.ended.is_set() and not one.ended.is_set() and not two.ended.is_set()
        async with asyncio.timeout(30):
            await one.ended.wait()
            await two.ended.wait()
        assert loop.time() - began >= 0.05
        for transport in (one, two):
            (answer,) = MessageDecoder().receive_data(transport.written)
            assert not answer["success"] and "meshToken is not the token of this meshrt dap" in answer["message"]
        for connection in (first, second, third):
            connection.connection_lost(None)
        assert not first._sessions.unproved

    asyncio.run(scene())

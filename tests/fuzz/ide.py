"""What connects as an IDE: its bytes, what it says before it has shown the token, and its requests after that."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.connection import Connection
from meshrt.debug.dap.router.mesh_view import MeshView
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.threads_view import ThreadsView
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Message, MessageDecoder, encode, response
from meshrt.errors import ProtocolError
from meshrt.transport.refusals import Refusals
from tests.fuzz.running import BAIT, Target
from tests.unit.debug.dap.router.fakes import FakeProgram, settled

__all__ = ["TARGETS", "session"]

_LIMIT = 64 << 10
#: One that has ended: its console finds nobody.


def _decode(data: bytes) -> None:
    """However it comes, the same messages come out, or the same refusal; what is kept is no longer than one message."""
    outcomes = []
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        decoder, found, refused = MessageDecoder(_LIMIT), [], False
        try:
            for piece in pieces:
                found += decoder.receive_data(piece)
        except ProtocolError:
            refused = True
        assert all(isinstance(each.get(part) or {}, dict) for each in found for part in ("arguments", "body"))
        outcomes.append((repr(found), refused))
    assert outcomes[0][1] == outcomes[1][1] and (outcomes[0][1] or outcomes[0] == outcomes[1])


class _Transport:
    """The socket of an IDE."""

    def __init__(self) -> None:
        self.decoder = MessageDecoder()
        self.said: list[Message] = []
        self.ended = False

    def write(self, data: bytes) -> None:
        self.said += self.decoder.receive_data(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _name: str) -> None:
        """Its socket."""

    def pause_reading(self) -> None:
        """Nothing is read from it."""

    resume_reading = pause_reading

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.ended = True

    close = abort


class _Complaints(logging.Handler):
    """Notes what goes wrong without anybody being told of it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.noted: list[BaseException | str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.noted.append(error or record.getMessage())


def _engine(_key: Key, asked: Message) -> Message:
    """What the engine of a rank answers. It is asked by the router alone."""
    arguments = asked.get("arguments") or {}
    bodies: dict[str, Any] = {
        "threads": {"threads": [{"id": 1, "name": "MainThread"}]},
        "stackTrace": {"stackFrames": [{"id": 1, "name": "step", "line": 3, "column": 0}], "totalFrames": 1},
        "scopes": {"scopes": [{"name": "Locals", "variablesReference": 2, "expensive": False}]},
        "variables": {"variables": [{"name": "x", "value": "1", "variablesReference": 0}]},
        "evaluate": {"result": "1", "variablesReference": 0},
    }
    if asked["command"] in ("setBreakpoints", "setFunctionBreakpoints", "setExceptionBreakpoints"):
        wanted = arguments.get("breakpoints")
        count = len(wanted) if isinstance(wanted, list) else 0
        return response(asked, {"breakpoints": [{"id": number, "verified": True} for number in range(count)]})
    return response(asked, bodies.get(asked["command"], {}))


async def _session(pieces: Sequence[bytes], view: str) -> None:
    program = FakeProgram(*(Rank("m1", rank, f"rank {rank}") for rank in range(2)), engine=_engine)
    complaints, log = _Complaints(), logging.getLogger("meshrt")

    def view_of(peer: Peer, configuration: Configuration) -> Any:
        if view == "threads":
            return ThreadsView(peer, configuration, 1, lambda _view: None)
        return MeshView(peer, configuration, 1, lambda _key: 1, lambda _view: None)

    sessions: Any = SimpleNamespace(
        token="t", channels=program.channels, unproved={},
        refusals=Refusals(), over=False, ending=set(), view_of=view_of,
        admission=SimpleNamespace(ask=lambda _sock, answer: answer("")),
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: complaints.noted.append(repr(context)))
    log.addHandler(complaints)
    propagates, log.propagate = log.propagate, False
    try:
        connection, transport = Connection(sessions), _Transport()
        connection.connection_made(cast(asyncio.Transport, transport))
        for piece in pieces:
            if not transport.ended:
                connection.data_received(piece)
            await settled()
        answered = Counter(each["request_seq"] for each in transport.said if each["type"] == "response")
        asked: Counter[int] = Counter()
        for piece in pieces:
            for each in MessageDecoder().receive_data(piece):
                asked[each.get("seq", 0)] += 1
        assert all(count <= asked[number] for number, count in answered.items()), "a request was answered twice"
        connection.connection_lost(None)
        await settled()
    finally:
        log.removeHandler(complaints)
        log.propagate = propagates
    for problem in complaints.noted:
        raise problem if isinstance(problem, BaseException) else AssertionError(problem)


def _connection(data: bytes, view: str) -> None:
    try:
        messages = json.loads(data)
    except (ValueError, RecursionError):
        messages = None
    pieces = [encode(each) for each in messages[:20] if isinstance(each, dict)] if isinstance(messages, list) else []
    try:
        for piece in pieces:
            MessageDecoder().receive_data(piece)
    except ProtocolError:
        return  # what it makes of that is tried by itself
    asyncio.run(_session(pieces, view))


def _threads(data: bytes) -> None:
    _connection(data, "threads")


def _mesh(data: bytes) -> None:
    _connection(data, "")


def _request(number: int, command: str, **arguments: Any) -> dict[str, Any]:
    return {"seq": number, "type": "request", "command": command, "arguments": arguments}


_ATTACH = [
    _request(1, "initialize", adapterID="meshrt", linesStartAt1=True, columnsStartAt1=True, pathFormat="path"),
    _request(2, "attach", meshToken="t", meshRanks="ranks(0:2)", meshView="threads", justMyCode=True, name="x"),
    _request(3, "setBreakpoints", source={"path": "/a.py"}, breakpoints=[{"line": 3, "condition": "x"}]),
    _request(4, "setExceptionBreakpoints", filters=["uncaught"]),
    _request(5, "configurationDone"),
]  # fmt: skip
_ASKED = [
    [_request(6, "threads"), _request(7, "stackTrace", threadId=1, startFrame=0, levels=20)],
    [_request(6, "scopes", frameId=1), _request(7, "variables", variablesReference=2, start=0, count=5)],
    [
        _request(6, "evaluate", expression="x", frameId=1, context="repl"),
        _request(7, "completions", text="x", column=1),
    ],
    [_request(6, "pause", threadId=1), _request(7, "continue", threadId=1), _request(8, "next", threadId=1)],
    [_request(6, "setVariable", variablesReference=2, name="x", value="3"), _request(7, "source", sourceReference=1)],
    [_request(6, "cancel", requestId=3), _request(7, "disconnect", restart=False, terminateDebuggee=False)],
]


def session(breakpoints: dict[str, Any]) -> bytes:
    """Return what an IDE says that sets breakpoints."""
    return json.dumps([*_ATTACH[:2], _request(3, "setBreakpoints", **breakpoints), *_ATTACH[3:]]).encode()


def _sessions() -> list[bytes]:
    return [json.dumps([*_ATTACH, *asked]).encode() for asked in _ASKED]


def _messages() -> list[bytes]:
    frames = [encode(each) for each in _ATTACH]
    http = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n" + frames[0]
    return [*frames, b"".join(frames), http, b"Content-Length: 2\r\nContent-Type: x\r\n\r\n{}", BAIT]


_WORDS = (b"Content-Length: ", b"\r\n\r\n", b"\r\n", b"-1", b"99999999999999999999", b"{", b"[" * 3000, b"\x00", b": ")
TARGETS = [
    Target("dap", _decode, _messages, (ProtocolError,), "", _WORDS, 4000),
    Target("dap-threads", _threads, _sessions, (), "json", count=1000),
    Target("dap-mesh", _mesh, _sessions, (), "json", count=1000),
]

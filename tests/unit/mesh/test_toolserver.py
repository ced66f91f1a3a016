"""The terminals' socket: who is let in, and what is left of it when the program ends."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from meshrt.hooks.facts import Body
from meshrt.mesh.toolserver import ToolConnection, ToolServer
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_TOOL, ClientHandshake
from meshrt.wire.tree import TO_TERMINAL, Answer, Request

TOKEN = b"x" * 32
UNUSED: Any = None


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as folder:  # paths of sockets have to be short
        yield str(Path(folder) / "tools")


def remove(path: str) -> None:
    Path(path).unlink()


def connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


async def echo(_client: ToolConnection, _operation: str, body: Body) -> Body:
    return body


async def enter(path: str, behind: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as a terminal does, and send something behind the proof, without waiting."""
    reader, writer = await asyncio.open_unix_connection(path)
    handshake = ClientHandshake(TOKEN, ROLE_TOOL, "tool")
    writer.write(handshake.hello())
    writer.write(handshake.receive_data(await reader.readexactly(64)) + behind)
    assert await reader.readexactly(1) == b"\x01"
    return reader, writer


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_terminal_asks_and_goes(path: str, run: Any) -> None:
    gone: list[ToolConnection] = []

    async def main() -> None:
        ended = asyncio.Event()

        def on_end(client: ToolConnection) -> None:
            gone.append(client)
            ended.set()

        server = ToolServer(path, TOKEN, echo, on_end)
        server.start()
        reader, writer = await enter(path, control_frame(Request(1, "echo", {"a": 1})))
        (frame,) = control_decoder().receive_data(await reader.read(1000))
        assert TO_TERMINAL.decode(frame.payload) == Answer(1, {"a": 1})
        (client,) = server.clients
        assert client.pid
        writer.close()
        await ended.wait()
        assert gone == [client] and not server.clients
        server.close()

    run(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_the_program_ends_while_a_terminal_enters(path: str, run: Any) -> None:
    async def main() -> None:
        server = ToolServer(path, TOKEN, echo, UNUSED)
        server.start()
        server._let_in = _end_at_once(server)  # type: ignore[method-assign]
        server._entrance._let_in = server._let_in
        reader, writer = await enter(path, b"")
        assert await reader.read() == b"" and not server.clients and not server._entering
        writer.close()

    run(main())


def _end_at_once(server: ToolServer) -> Any:
    let_in = server._let_in

    def let_in_and_end(*entered: Any) -> None:
        let_in(*entered)
        server.close()

    return let_in_and_end


def test_invalid_data_ends_the_connection(path: str, caplog: pytest.LogCaptureFixture) -> None:
    gone: list[ToolConnection] = []

    async def main() -> None:
        server = ToolServer(path, TOKEN, echo, gone.append)
        server.start()
        reader, writer = await enter(path, b"nonsense" * 10)
        assert await reader.read() == b""
        writer.close()
        server.close()

    asyncio.run(main())
    assert len(gone) == 1 and "a terminal (pid " in caplog.text and "was refused" in caplog.text


def test_one_that_is_made_again_while_it_closes_does_not_stay(path: str) -> None:
    async def main() -> None:
        server = ToolServer(path, TOKEN, UNUSED, UNUSED)
        server.start()
        remove(path)
        server.listen_again()
        await asyncio.sleep(0)
        assert connects(path)
        remove(path)
        server.listen_again()
        server.close()
        await asyncio.sleep(0)
        assert not connects(path)

    asyncio.run(main())


def test_it_is_asked_for_when_the_loop_is_closed(path: str) -> None:
    async def main() -> ToolServer:
        server = ToolServer(path, TOKEN, UNUSED, UNUSED)
        server.start()
        server.close()
        return server

    server = asyncio.run(main())
    server.listen_again()
    assert not connects(path)

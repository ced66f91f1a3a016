"""The terminals' socket, when it is made again while the program ends."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.mesh.toolserver import ToolServer

UNUSED: Any = None


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as folder:  # paths of sockets have to be short
        yield str(Path(folder) / "tools")


def remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)  # from Python 3.13 on asyncio has done that


def connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


def test_one_that_is_made_again_while_it_closes_does_not_stay(path: str) -> None:
    async def main() -> None:
        server = ToolServer(path, b"x" * 32, UNUSED, UNUSED)
        await server.start()
        remove(path)
        server._bind_again()
        starting = server._starting
        assert starting is not None and not starting.done()
        server.close()
        await starting
        await asyncio.sleep(0)  # what closing has asked of the loop
        assert not connects(path)
        remove(path)
        server._bind_again()
        assert not connects(path)

    asyncio.run(main())


def test_it_is_asked_for_when_the_loop_is_closed(path: str) -> None:
    async def main() -> ToolServer:
        server = ToolServer(path, b"x" * 32, UNUSED, UNUSED)
        await server.start()
        server.close()
        return server

    server = asyncio.run(main())
    server.listen_again()
    assert not connects(path)

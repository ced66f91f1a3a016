from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.debug.dap.router.listening import listen_at_path, listen_at_port
from meshrt.errors import UsageError
from meshrt.transport.loopback import LoopbackTable
from tests.unit.debug.dap.router.fakes import run


@pytest.fixture
def table() -> Iterator[LoopbackTable]:
    with contextlib.closing(LoopbackTable()) as table:
        yield table


def test_messages_to_an_ide_wait_for_no_acknowledgement(table: LoopbackTable) -> None:
    async def scene() -> None:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                sock = transport.get_extra_info("socket")
                found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        with listen_at_port(0, table) as listener:
            async with await asyncio.get_running_loop().create_server(Accepted, sock=listener):
                with socket.create_connection(listener.getsockname()):
                    assert await found

    run(scene)


def test_a_port_that_is_taken(table: LoopbackTable) -> None:
    with listen_at_port(0, table) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(OSError, match=f"cannot listen at port {port}: Address already in use; --port 0"):
            listen_at_port(port, table)


def test_a_socket_of_this_user(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_at_path(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(UsageError, match="another process listens at"):
            listen_at_path(path)
    # One that was left over is replaced; what is not a socket is kept, and so is what a link leads to.
    with listen_at_path(path):
        pass
    for name in ("file", "link"):
        other = tmp_path / name
        if name == "link":
            other.symlink_to(path)
        else:
            other.touch()
        with pytest.raises(UsageError, match="is not a socket"):
            listen_at_path(other)

"""Where terminals connect: a unix socket in the runtime directory, for ``python -m meshrt.debug`` and the like.

A client proves the token of ``tools.token`` (0600, another secret than the mesh's) in role *tool*, then sends
``op`` messages and gets ``ok`` / ``no`` and events. It can never reach the data plane.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from meshrt.errors import ProtocolError
from meshrt.hooks import Body
from meshrt.transport.link import peer_of, same_user
from meshrt.wire.frames import CONTROL_MAX, FrameDecoder
from meshrt.wire.handshake import ROLE_TOOL, ServerHandshake
from meshrt.wire.messages import control_frame, unpack_control

__all__ = ["ToolConnection", "ToolServer"]

#: A client that has not read so many bytes is disconnected.
_BACKLOG_MAX = 4 << 20
_HANDSHAKE_SECONDS = 2.0

Serve = Callable[["ToolConnection", str, Body], Awaitable[Body | None]]


class ToolConnection(asyncio.Protocol):
    """One client (`meshrt.hooks.ToolClient`). On the root's loop."""

    _next_id = 1

    def __init__(self, server: ToolServer) -> None:
        self.id = ToolConnection._next_id
        ToolConnection._next_id += 1
        self.pid = 0
        self._server = server
        self._transport: Any = None
        self._handshake: ServerHandshake | None = ServerHandshake(server.token, ROLE_TOOL)
        self._decoder = FrameDecoder(CONTROL_MAX + 64)
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if not same_user(sock):
            transport.abort()
            return
        self.pid = peer_of(sock)[0]
        self._deadline = asyncio.get_running_loop().call_later(_HANDSHAKE_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        try:
            if self._handshake is not None:
                data = self._prove(self._handshake, data)
            if data:
                for frame in self._decoder.receive_data(data):
                    self._serve(unpack_control(frame.payload))
        except ProtocolError as error:
            logging.getLogger("meshrt").warning("a terminal (pid %s) was refused: %s", self.pid, error)
            self._transport.abort()

    def _prove(self, handshake: ServerHandshake, data: bytes) -> bytes:
        answer = handshake.receive_data(data)
        if answer:
            self._transport.write(answer)
        if not handshake.done:
            return b""
        self._handshake = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._server.clients.add(self)
        return handshake.leftover

    def _serve(self, message: dict[str, Any]) -> None:
        if message["t"] != "op":
            raise ProtocolError(f"a terminal sent {message['t']!r}")
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            body = await self._server.serve(self, message["op"], message.get("body") or {})
            answer = {"t": "ok", "id": message["id"], "body": body}
        except Exception as error:
            # The refusal is the answer; the client shows it.
            answer = {"t": "no", "id": message["id"], "why": str(error) or type(error).__name__}
        self._write(answer)

    def push(self, event: str, body: Body) -> None:
        """Send an event; a client that does not read is disconnected."""
        self._write({"t": "ev", "ev": event, "body": body})

    def _write(self, message: dict[str, Any]) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(control_frame(message))
        if self._transport.get_write_buffer_size() > _BACKLOG_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        for task in self._tasks:
            task.cancel()
        if self in self._server.clients:
            self._server.clients.discard(self)
            self._server.gone(self)

    def close(self) -> None:
        """Send what is queued and close."""
        self._transport.close()


class ToolServer:
    """Listens at ``path``. Made and used on the root's loop."""

    def __init__(self, path: str, token: bytes, serve: Serve, gone: Callable[[ToolConnection], None]) -> None:
        self.token = token
        self.serve = serve
        self.gone = gone
        self.clients: set[ToolConnection] = set()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.bind(path)
        self._sock.listen(64)
        self._server: Any = None

    async def start(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: ToolConnection(self), sock=self._sock)

    def close(self) -> None:
        """Stop accepting and close every client."""
        if self._server is not None:
            self._server.close()
        for client in tuple(self.clients):
            client.close()

    def abandon(self) -> None:
        """Close the descriptor in a forked child."""
        self._sock.close()

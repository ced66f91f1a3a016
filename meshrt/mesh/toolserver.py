"""Where terminals connect: a unix socket in the runtime directory, for ``python -m meshrt.debug`` and the like.

A client proves the token of ``tools.token`` (0600, another secret than the mesh's) in role *tool*, then sends
``op`` messages and gets ``ok`` / ``no`` and events. It can never reach the data plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from meshrt.errors import MeshError, ProtocolError
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Report, body_of
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.entrance import Entrance
from meshrt.transport.link import peer_of
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_TOOL, ServerHandshake
from meshrt.wire.peer import Reply
from meshrt.wire.tree import FROM_TERMINAL, Event, Request

__all__ = ["ToolConnection", "ToolServer"]

#: A client that has not read so many bytes is disconnected.
_BACKLOG_MAX = 16 << 20

_log = logging.getLogger("meshrt")

_Entering = asyncio.Task[tuple[asyncio.Transport, asyncio.BaseProtocol]]
Serve = Callable[["ToolConnection", str, Body], Awaitable[Body]]


class ToolConnection(asyncio.Protocol):
    """One client (`meshrt.hooks.services.ToolClient`), which has proved the token. On the root's loop.

    Args:
        sock: Its socket.
        received: What it has sent behind its proof.
    """

    _next_id = 1

    def __init__(self, server: ToolServer, sock: socket.socket, received: bytes) -> None:
        self.id = ToolConnection._next_id
        ToolConnection._next_id += 1
        self.pid = peer_of(sock)[0]
        self.sock = sock
        self._server = server
        self._received = received
        self._transport: asyncio.Transport
        self._decoder = control_decoder()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve what has come already."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.clients.add(self)
        self.data_received(self._received)

    def data_received(self, data: bytes) -> None:
        """Serve the requests that ``data`` completes; invalid data ends the connection."""
        try:
            for frame in self._decoder.receive_data(data):
                self._serve(FROM_TERMINAL.decode(frame.payload))
        except ProtocolError as error:
            self._server.refused(self, error)
            self.abort()

    def _serve(self, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request) -> None:
        reply = Reply(request.id, self._write)
        try:
            reply(await self._server.serve(self, request.op, request.arguments), "")
        except Exception as error:
            # The refusal is the answer, which the client shows.
            if not isinstance(error, MeshError):
                _log.exception("operation %s of a terminal failed", request.op)
            reply.fail(error)

    def report(self, report: Report) -> None:
        """Send a report; a client that does not read is disconnected."""
        self._write(Event(report.name(), body_of(report)))

    def _write(self, message: Message) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(control_frame(message))
        if self._transport.get_write_buffer_size() > _BACKLOG_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what this client has asked for, and forget it."""
        for task in self._tasks:
            task.cancel()
        self._server.clients.discard(self)
        self._server.gone(self)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def close(self) -> None:
        """Send what is queued and close."""
        self._transport.close()


class ToolServer:
    """Listens at ``path``. Made and used on the root's loop.

    Args:
        token: What a client proves.
        serve: Serves a request of a client.
        gone: Called with a client whose connection has ended.
    """

    def __init__(self, path: str, token: bytes, serve: Serve, gone: Callable[[ToolConnection], None]) -> None:
        self.serve = serve
        self.gone = gone
        self.clients: set[ToolConnection] = set()
        self._path = path
        self._loop = loop = asyncio.get_running_loop()
        self._entrance = Entrance(
            loop, listening_socket(path), "a terminal", token, ROLE_TOOL, self._let_in, loop.call_later
        )
        #: Those that are let in, until the loop reads them.
        self._entering: dict[_Entering, ToolConnection] = {}

    def start(self) -> None:
        """Begin to accept."""
        self._entrance.open()

    def listen_again(self) -> None:
        """Listen at the same path again: its socket was removed. Open connections stay. Any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the program ends
            self._loop.call_soon_threadsafe(self._entrance.listen_again)

    def _let_in(self, sock: socket.socket, handshake: ServerHandshake) -> None:
        client = ToolConnection(self, sock, handshake.leftover)
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: client, sock))
        self._entering[task] = client
        task.add_done_callback(self._entered)

    def _entered(self, task: _Entering) -> None:
        client = self._entering.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a terminal cannot be connected: %s", error)
        if error is not None or task.cancelled():
            client.sock.close()

    def refused(self, client: ToolConnection, error: ProtocolError) -> None:
        """A client has sent what is invalid."""
        self._entrance.refusals.note(f"a terminal (pid {client.pid})", error)

    def close(self) -> None:
        """Stop accepting and close every client."""
        self._entrance.close()
        for task in tuple(self._entering):
            task.cancel()
        for client in tuple(self.clients):
            client.close()

    def abandon(self) -> None:
        """Close the sockets in a forked child: a terminal must see the end of the parent."""
        clients = (client.sock for client in (*self.clients, *self._entering.values()))
        for sock in (*self._entrance.sockets(), *clients):
            _sever(sock, self._path)


def _sever(sock: socket.socket, path: str) -> None:
    """Put the null device in place of a socket at ``path``, unless its number belongs to something else by now.

    It is not closed: the child has copies of the loop's objects too, and their end closes the number once more.
    """
    with contextlib.suppress(OSError):  # closed already, or no socket any more
        if sock.getsockname() == path:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, sock.fileno(), inheritable=False)
            os.close(null)

"""Where terminals connect: a unix socket in the runtime directory, for ``python -m meshrt.debug`` and the like.

A client proves the token of ``tools.token`` (0600, another secret than the mesh's) in role *tool*, then sends
``op`` messages and gets ``ok`` / ``no`` and events. It can never reach the data plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

from meshrt.errors import MeshError, ProtocolError
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Report, body_of
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.link import peer_of, same_user
from meshrt.transport.refusals import Refusals
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import HANDSHAKE_SECONDS, ROLE_TOOL, UNPROVED_MAX, ServerHandshake
from meshrt.wire.peer import Reply
from meshrt.wire.tree import FROM_TERMINAL, Event, Request

__all__ = ["ToolConnection", "ToolServer"]

#: A client that has not read so many bytes is disconnected.
_BACKLOG_MAX = 16 << 20

_log = logging.getLogger("meshrt")

#: A descriptor, and the number of the socket behind it.
_Place = tuple[int, int]
Serve = Callable[["ToolConnection", str, Body], Awaitable[Body | None]]


class ToolConnection(asyncio.Protocol):
    """One client (`meshrt.hooks.services.ToolClient`). On the root's loop."""

    _next_id = 1

    def __init__(self, server: ToolServer) -> None:
        self.id = ToolConnection._next_id
        ToolConnection._next_id += 1
        self.pid = 0
        self.place: _Place = (-1, 0)
        self._server = server
        self._transport: Any = None
        self._handshake: ServerHandshake | None = ServerHandshake(server.token, ROLE_TOOL)
        self._decoder = control_decoder()
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake; another user is disconnected."""
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if not same_user(sock):
            transport.abort()
            return
        self.pid = peer_of(sock)[0]
        self.place = _place_of(sock.fileno())
        self._server.admit(self)
        self._expect_proof()

    def _expect_proof(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Serve the requests that ``data`` completes; invalid data ends the connection."""
        try:
            if self._handshake is not None:
                data = self._prove(self._handshake, data)
            if data:
                for frame in self._decoder.receive_data(data):
                    self._serve(FROM_TERMINAL.decode(frame.payload))
        except ProtocolError as error:
            self._server.refusals.note(f"a terminal (pid {self.pid})", error)
            self.abort()

    def _prove(self, handshake: ServerHandshake, data: bytes) -> bytes:
        answer = handshake.receive_data(data)
        if answer:
            self._transport.write(answer)
            self._expect_proof()  # which it can make only from here on
        if not handshake.done:
            return b""
        self._handshake = None
        self._server.unproved.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        self._server.clients.add(self)
        return handshake.leftover

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
                _log.exception("operation %s of a terminal", request.op)
            reply.fail(error)

    def report(self, report: Report) -> None:
        """Send a report; a client that does not read is disconnected."""
        self.push(report.name(), body_of(report))

    def push(self, event: str, body: Body) -> None:
        """Send an event; a client that does not read is disconnected."""
        self._write(Event(event, body))

    def _write(self, message: Message) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(control_frame(message))
        if self._transport.get_write_buffer_size() > _BACKLOG_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what this client has asked for, and forget it."""
        if self._deadline is not None:
            self._deadline.cancel()
        for task in self._tasks:
            task.cancel()
        self._server.unproved.pop(self, None)
        if self in self._server.clients:
            self._server.clients.discard(self)
            self._server.gone(self)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

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
        #: Those that have proved nothing yet, the oldest first.
        self.unproved: dict[ToolConnection, None] = {}
        self.refusals = Refusals()
        self._path = path
        self._sock = listening_socket(path)
        self._place = _place_of(self._sock.fileno())
        self._server: Any = None
        self._loop: Any = None
        #: Begins to accept at a socket that was made again; kept, as the loop does not keep it.
        self._starting: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Begin to accept."""
        self._loop = asyncio.get_running_loop()
        server = await self._loop.create_unix_server(lambda: ToolConnection(self), sock=self._sock)
        if self._closed:  # meanwhile
            server.close()
        else:
            self._server = server

    def listen_again(self) -> None:
        """Listen at the same path again: its socket was removed. Open connections stay. Any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the program ends
            self._loop.call_soon_threadsafe(self._bind_again)

    def _bind_again(self) -> None:
        if self._closed or os.path.lexists(self._path):
            return  # the second request, or the program ends
        self._server.close()
        try:
            self._sock = listening_socket(self._path)
        except OSError:  # the directory has been removed as well: tried again when that is there
            return
        self._place = _place_of(self._sock.fileno())
        self._starting = self._loop.create_task(self.start())

    def admit(self, client: ToolConnection) -> None:
        """A client has connected, and has proved nothing."""
        if len(self.unproved) >= UNPROVED_MAX:
            oldest = next(iter(self.unproved))
            del self.unproved[oldest]
            oldest.abort()
        self.unproved[client] = None

    def close(self) -> None:
        """Stop accepting and close every client."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for client in tuple(self.clients):
            client.close()
        for client in tuple(self.unproved):
            client.abort()

    def abandon(self) -> None:
        """Close the sockets in a forked child: a terminal must see the end of the parent."""
        _sever(self._place)
        for client in (*self.clients, *self.unproved):
            _sever(client.place)


def _place_of(descriptor: int) -> _Place:
    return descriptor, os.fstat(descriptor).st_ino


def _sever(place: _Place) -> None:
    """Put the null device in place of a socket, unless its number belongs to something else by now.

    It is not closed: the child has copies of the loop's objects too, and their end closes the number once more.
    """
    descriptor, _ = place
    with contextlib.suppress(OSError):  # closed already
        if place == _place_of(descriptor):
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, descriptor, inheritable=False)
            os.close(null)

"""One connection of an IDE, from the moment that it is accepted: who is there, and which session it carries.

A connection is nobody's until its attach request has shown the token (on a unix socket: that it is the same user's
process). Before that it is told what an engine can do, and gets 64 KiB and ten seconds.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from meshrt.debug.dap.router.channels import Channels
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.ranks import Rank
from meshrt.debug.dap.router.view import CAPABILITIES, Peer, View
from meshrt.debug.dap.wire import MESSAGE_MAX, Message, MessageDecoder, encode, event, failure, response
from meshrt.errors import AuthenticationError, MeshError, ProtocolError
from meshrt.transport.link import same_user
from meshrt.transport.refusals import Refusals
from meshrt.transport.tools import Program

__all__ = ["GOODBYE_SECONDS", "Connection", "Sessions"]

_UNPROVED_BYTES = 64 << 10
_UNPROVED_SECONDS = 10.0
_UNPROVED_MAX = 64
#: Seconds for an IDE to say goodbye when its session is over.
GOODBYE_SECONDS = 2.0
#: Bytes that an IDE has not read, after which it is taken for gone.
_BACKLOG_MAX = 64 << 20

_log = logging.getLogger("meshrt")


class Sessions(Protocol):
    """What a connection is for: the sessions with one program."""

    program: Program
    channels: Channels
    #: What an attach request has to show; "": whoever may connect is known (a unix socket).
    token: str
    refusals: Refusals
    #: Connections that have shown nothing yet, the oldest first.
    unproved: dict[Connection, None]
    #: Connections whose session is over, until they are closed.
    ending: set[Connection]
    #: Whether the program has ended, or is left.
    over: bool

    def view_of(self, peer: Peer, configuration: Configuration) -> View:
        """Return the session that an attach request begins. Raises UsageError."""

    async def which(self, mesh: str, ranks: str) -> list[Rank]:
        """Return the ranks that live and are meant. Raises MeshError: there are none."""


class Connection(asyncio.Protocol):
    """One connection of an IDE (`meshrt.debug.dap.router.view.Peer`)."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.channels = sessions.channels
        self.program = sessions.program
        self._transport: Any = None
        self._decoder = MessageDecoder(_UNPROVED_BYTES)
        self._deadline: asyncio.TimerHandle | None = None
        self._initialize: dict[str, Any] = {}
        self._view: View | None = None
        self._numbers = itertools.count(1)
        self._asked: dict[int, Callable[[Message], None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        #: Done when the connection has ended.
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if not self._sessions.token and not same_user(transport.get_extra_info("socket")):
            transport.abort()
            return
        unproved = self._sessions.unproved
        if len(unproved) >= _UNPROVED_MAX:
            next(iter(unproved)).drop("too many others wait")
        unproved[self] = None
        self._deadline = asyncio.get_running_loop().call_later(_UNPROVED_SECONDS, self.drop, "it has not attached")

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.receive_data(data):
                self._receive(message)
        except ProtocolError as error:
            self.drop(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlist()
        self._sessions.ending.discard(self)
        self.closed.set_result(None)
        for task in self._tasks:
            task.cancel()
        if self._view is not None:
            self._view.gone()

    def drop(self, why: str) -> None:
        """Close at once, and say why once in a while."""
        self._sessions.refusals.note("an IDE", AuthenticationError(why))
        self._unlist()  # at once: the next one must not find it the oldest again
        self._transport.abort()

    # -- Peer

    def write(self, message: Message) -> None:
        """Send a message."""
        if self._transport.is_closing():
            return
        self._transport.write(encode({**message, "seq": next(self._numbers)}))
        if self._transport.get_write_buffer_size() > _BACKLOG_MAX:
            self._transport.abort()

    def ask(self, command: str, arguments: dict[str, Any], answered: Callable[[Message], None]) -> None:
        """Ask the IDE for something."""
        number = next(self._numbers)
        self._asked[number] = answered
        message = {"seq": number, "type": "request", "command": command, "arguments": arguments}
        if not self._transport.is_closing():
            self._transport.write(encode(message))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that takes a while."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a session of an IDE", exc_info=task.exception())
            self._transport.abort()

    def hang_up(self) -> None:
        """Close once everything has been sent."""
        self._transport.close()

    def end(self, *, left: bool = False) -> None:
        """Say that the session is over, and close once the IDE has said goodbye; it gets a while for that."""
        if self._over or self._transport.is_closing():
            return
        self._over = True
        self.write(event("terminated"))
        if left:
            self.hang_up()
            return
        self._sessions.ending.add(self)
        # To an IDE a connection that ends before its goodbye is broken.
        asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self.hang_up)

    async def which(self, mesh: str, ranks: str) -> list[Rank]:
        """Return the ranks that live and are meant."""
        return await self._sessions.which(mesh, ranks)

    # -- what it says

    def _receive(self, message: Message) -> None:
        if message["type"] == "response":
            answered = self._asked.pop(message.get("request_seq", 0), None)
            if answered is not None:
                answered(message)
        elif self._over:
            self._after_end(message)
        elif self._view is not None and message.get("command") in ("attach", "launch", "initialize"):
            why = "this connection has a session already; expected a connection of its own for each session"
            self.write(failure(message, why))
        elif self._view is not None:
            self._view.receive(message)
        elif message["type"] == "request":
            self._before_attach(message)

    def _after_end(self, message: Message) -> None:
        if message["type"] != "request":
            return
        if message["command"] == "disconnect":
            self.write(response(message))
            self.hang_up()
        else:
            self.write(failure(message, "the session has ended"))

    def _before_attach(self, message: Message) -> None:
        command, arguments = message["command"], message.get("arguments") or {}
        if command == "initialize":
            self._initialize = arguments
            self.write(response(message, CAPABILITIES))
        elif command == "attach":
            try:
                self._begin_view(message, arguments)
            except MeshError as error:
                self.write(failure(message, str(error)))
                self.hang_up()
        elif command == "disconnect":
            self.write(response(message))
            self.hang_up()
        elif command == "launch":
            self.write(failure(message, 'meshrt programs are attached to: "request": "attach"'))
        else:
            self.write(failure(message, f"{command} before attach"))

    def _begin_view(self, message: Message, arguments: dict[str, Any]) -> None:
        token = arguments.get("meshToken")
        shown = token if isinstance(token, str) else ""
        # What JSON can say need not be text: half a character makes a wrong token, and no error of another kind.
        proof = shown.encode("utf-8", "backslashreplace")
        if self._sessions.token and not hmac.compare_digest(proof, self._sessions.token.encode()):
            self._sessions.refusals.note("an IDE", AuthenticationError("a wrong token"))
            what = "meshToken is missing" if not shown else "meshToken is not that of this program's meshrt dap"
            raise AuthenticationError(f"{what}; meshrt dap prints it, and --write-launch-json puts it into launch.json")
        configuration = Configuration.read(arguments)
        if self._sessions.over:
            raise MeshError("the program has ended")
        self._unlist()
        self._decoder.limit = MESSAGE_MAX
        view = self._sessions.view_of(self, configuration)
        self._view = view
        view.attach(message, self._initialize)

    def _unlist(self) -> None:
        """Be none of those any more that have shown nothing yet."""
        self._sessions.unproved.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

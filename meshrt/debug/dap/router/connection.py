"""One connection of an IDE, from its accept on: the check of the peer, and the session that it carries.

::

    accepted --the kernel: this user's process--> unproved --attach with the token--> a session
        '--another user's--> (closed, not a byte is read)  '--a wrong token--> delayed --1 s--> (refused, closed)

An unproved connection is told what an engine can do, and gets 64 KiB and ten seconds. There are 64 of them; the oldest
makes room for a new one. A delayed one does not, so at most 64 tokens can be tried in a second. Connections of
other users count for nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import cast

from meshrt.debug.dap.router.admission import Admission
from meshrt.debug.dap.router.channels import Channels
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.greeting import answer_before_attach
from meshrt.debug.dap.router.view import Peer, View
from meshrt.debug.dap.wire import (
    MESSAGE_MAX,
    Fields,
    Message,
    MessageDecoder,
    arguments_of,
    encode,
    event,
    failure,
    response,
)
from meshrt.errors import AuthenticationError, MeshError, ProtocolError
from meshrt.transport.refusals import Refusals
from meshrt.wire.pending import PendingTable

__all__ = ["GOODBYE_SECONDS", "Connection", "Sessions"]

_UNPROVED_BYTES = 64 << 10
_UNPROVED_SECONDS = 10.0
_UNPROVED_MAX = 64
#: Until a wrong token is refused.
_DELAY_SECONDS = 1.0
#: Seconds for an IDE to say goodbye when its session is over.
GOODBYE_SECONDS = 2.0
#: Bytes that an IDE has not read, after which it is taken for gone.
_BACKLOG_MAX = 64 << 20

_log = logging.getLogger("meshrt")


class _WrongToken(Exception):
    """An attach request has shown another token."""


class Sessions(ABC):
    """What a connection is for: the sessions with one program. On the router's loop.

    Args:
        token: The token that an attach request needs; "" if the peer is known already (a unix socket).
        admission: Decides which peers may connect.
    """

    def __init__(self, token: str, admission: Admission, channels: Channels) -> None:
        self.token = token
        self.admission = admission
        self.channels = channels
        self.refusals = Refusals()
        #: Connections that have shown nothing yet, the oldest first.
        self.unproved: dict[Connection, None] = {}
        #: Connections whose session is over, until they are closed.
        self.ending: set[Connection] = set()
        #: Whether the program has ended, or is left.
        self.over = False

    @abstractmethod
    def view_of(self, peer: Peer, configuration: Configuration) -> View:
        """Return the session that an attach request begins. Raises UsageError."""


class Connection(asyncio.Protocol):
    """One connection of an IDE (`meshrt.debug.dap.router.view.Peer`)."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.channels = sessions.channels
        self._transport: asyncio.Transport
        self._decoder = MessageDecoder(_UNPROVED_BYTES)
        self._deadline: asyncio.TimerHandle | None = None
        self._initialize: Fields = {}
        self._view: View | None = None
        self._numbers = itertools.count(1)
        self._asked: PendingTable[Callable[[Message], None]] = PendingTable(self._numbers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        #: It has shown a wrong token, and is told so in a while.
        self.delayed = False
        #: Done when the connection has ended.
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read nothing until the kernel has told whose the peer is."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()
        self._sessions.admission.ask(transport.get_extra_info("socket"), self._admit)

    def _admit(self, problem: str) -> None:
        """Take the kernel's answer about the owner of the peer; ``problem``: why it may not connect, or ""."""
        unproved = self._sessions.unproved
        if self._transport.is_closing():
            return
        if not problem and len(unproved) >= _UNPROVED_MAX:
            oldest = next((each for each in unproved if not each.delayed), None)
            if oldest is None:
                problem = "too many connections with wrong tokens"
            else:
                oldest.drop("too many connections are waiting")
        if problem:
            self.drop(problem)
            return
        unproved[self] = None
        self._deadline = asyncio.get_running_loop().call_later(_UNPROVED_SECONDS, self.drop, "no attach in time")
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the IDE; invalid DAP closes the connection."""
        try:
            for message in self._decoder.receive_data(data):
                if self.delayed:
                    return  # nothing of it counts
                self._receive(message)
        except ProtocolError as error:
            self.drop(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the session that the connection carries, and its tasks."""
        self._unlist()
        self._sessions.ending.discard(self)
        self.closed.set_result(None)
        for task in self._tasks:
            task.cancel()
        if self._view is not None:
            self._view.gone()

    def drop(self, why: str) -> None:
        """Close at once, and log why, at a limited rate."""
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

    def ask(self, command: str, arguments: Fields, answered: Callable[[Message], None]) -> None:
        """Ask the IDE for something."""
        number = self._asked.add(answered)
        message = {"seq": number, "type": "request", "command": command, "arguments": arguments}
        if not self._transport.is_closing():
            self._transport.write(encode(message))

    def begin(self, work: Coroutine[object, None, None]) -> None:
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

    # -- what it says

    def _receive(self, message: Message) -> None:
        if message["type"] == "response":
            answered = self._asked.remove(message["request_seq"])
            if answered is not None:
                answered(message)
        elif self._over:
            self._after_end(message)
        elif self._view is not None and message.get("command") in ("attach", "launch", "initialize"):
            why = "this connection already has a session; each session needs its own connection"
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
        command, arguments = message["command"], arguments_of(message)
        if command == "attach":
            try:
                self._begin_view(message, arguments)
            except _WrongToken as error:
                self.delayed = True
                self._transport.pause_reading()
                asyncio.get_running_loop().call_later(_DELAY_SECONDS, self._refuse, failure(message, str(error)))
            except MeshError as error:
                self._refuse(failure(message, str(error)))
            return
        answer, goes_on = answer_before_attach(message)
        if not goes_on:
            self._refuse(answer)
            return
        if command == "initialize":
            self._initialize = arguments
        self.write(answer)

    def _refuse(self, answer: Message) -> None:
        self.write(answer)
        self.hang_up()

    def _begin_view(self, message: Message, arguments: Fields) -> None:
        self._check_token(arguments.get("meshToken"))
        configuration = Configuration.read(arguments)
        if self._sessions.over:
            raise MeshError("the program has ended")
        self._unlist()
        self._decoder.limit = MESSAGE_MAX
        view = self._sessions.view_of(self, configuration)
        self._view = view
        view.attach(message, self._initialize)

    def _check_token(self, token: object) -> None:
        """Raise AuthenticationError unless this is the token."""
        expected = self._sessions.token
        shown = token if isinstance(token, str) else ""
        # What JSON can say need not be text: half a character makes a wrong token, and no error of another kind.
        proof = shown.encode("utf-8", "backslashreplace")
        if not expected or hmac.compare_digest(proof, expected.encode()):
            return
        how = "each start of meshrt dap makes a new token; meshrt dap --write-launch-json writes the token"
        if not shown:
            raise AuthenticationError(f"meshToken is missing; {how}")
        self._sessions.refusals.note("an IDE", AuthenticationError("a wrong token"))
        raise _WrongToken(f"meshToken is not the token of this meshrt dap; {how}")

    def _unlist(self) -> None:
        """Remove this connection from the unproved ones."""
        self._sessions.unproved.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

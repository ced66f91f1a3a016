"""The engines of ranks, as the router talks to them: messages through the program, each on a channel of its own.

::

    opening --Opened--> open --Closed--> closed
       '-------Closed, refused--------^

Requests may go to many engines at once. A silent one, as C code holds its GIL, delays the others only briefly.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from meshrt.debug.dap import operations as ops
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.router.ranks import Rank
from meshrt.debug.dap.stops import Stops
from meshrt.debug.dap.wire import RESUMING, Fields, Message, MessageDecoder, encode
from meshrt.errors import DebugAdapterError, MeshError
from meshrt.hooks.facts import Body
from meshrt.wire.pending import PendingTable

__all__ = ["SILENT_SECONDS", "Answers", "Channels", "RankLink", "Watcher", "ask_each"]

#: By name.
_REPORTS = {report.name(): report for report in ops.OF_CHANNELS}
#: The first number of the router's own requests. The numbers of an IDE stay below it.
_OWN = 1 << 24
#: Bytes of one control message.
_CHUNK = 256 << 10
#: Seconds after which a rank is taken for silent: what it is asked it still does when it can.
SILENT_SECONDS = 2.0

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class Watcher:
    """The callbacks for what an engine sends. Called on the loop."""

    #: An event, or the answer to a request that was sent with `RankLink.send`.
    message: Callable[[Message], None]
    #: A text for the user; it names the rank.
    said: Callable[[str], None]
    #: Expressions of breakpoints that have raised.
    raised: Callable[[Sequence[ops.Raising]], None]
    #: The channel has ended: why, or "" after a goodbye.
    closed: Callable[[str], None]


class Channels:
    """All channels of this router. On the loop."""

    def __init__(self, program: ProgramLink) -> None:
        self.program = program
        self._links: dict[int, RankLink] = {}
        self._numbers = itertools.count(1)

    def admit(self, link: RankLink) -> int:
        """Add a channel and return its number."""
        number = next(self._numbers)
        self._links[number] = link
        return number

    def forget(self, number: int) -> None:
        """Remove a channel that could not be opened."""
        self._links.pop(number, None)

    def event(self, name: str, body: Body) -> bool:
        """Take an event of the program. Returns False if it is not an event of a channel. Raises ProtocolError."""
        kind = _REPORTS.get(name)
        if kind is None:
            return False
        report = kind.read(body)
        link = self._links.get(report.channel)
        if link is not None:
            if isinstance(report, ops.Closed):
                del self._links[link.channel]
            link.receive(report)
        return True

    def lost(self, why: str) -> None:
        """Close all channels, as the program has ended or the router has left it."""
        for number, link in list(self._links.items()):
            del self._links[number]
            link.receive(ops.Closed(number, why))


@dataclass(slots=True, eq=False)
class RankLink:
    """A channel to the engine of one rank. On the loop."""

    rank: Rank
    watcher: Watcher
    _channels: Channels
    channel: int = 0
    #: Threads of the engine that are stopped.
    stops: Stops = field(default_factory=Stops)
    price: str = ""
    #: The rank has answered the request to attach. If it has not joined yet, its engine is still loading.
    answered: bool = False
    #: Whether the IDE shows the next stop of this rank. True: the user looks at this rank and waits for it. False: the
    #: user looks at another rank, which stays shown. None: the user has not requested this stop.
    looked: bool | None = None
    #: A pause is requested, and no thread has stopped for it yet.
    pausing: bool = False
    _opened: asyncio.Future[None] | None = None
    _decoder: MessageDecoder = field(default_factory=MessageDecoder)
    _waiting: PendingTable[asyncio.Future[Message]] = field(default_factory=lambda: PendingTable(itertools.count(_OWN)))
    #: Numbers of requests to evaluate that are not answered yet.
    evaluating: set[int] = field(default_factory=set)
    _closed: bool = False

    async def open(
        self, initialize: Fields, *, stay: bool, session: int, on_silent: Callable[[], None] = lambda: None
    ) -> None:
        """Have the rank load its engine, and initialize it.

        Args:
            initialize: The arguments of the IDE's ``initialize`` request.
            stay: Whether stopped threads stay stopped if the IDE is lost.
            session: The number of the session. Breakpoints set in its console are deleted when it ends. 0: no session.
            on_silent: Called if the rank does not answer within `SILENT_SECONDS`; the user has been told by then.
        Raises:
            MeshError: The rank refuses, or ends.
        """
        self._opened = asyncio.get_running_loop().create_future()
        self.channel = number = self._channels.admit(self)
        mesh, rank = self.rank.key
        asking = asyncio.ensure_future(self._channels.program.ask(ops.Open(mesh, rank, number, stay, session)))
        try:
            await asyncio.wait([asking], timeout=SILENT_SECONDS)
            if not asking.done():
                why = "C code holds its GIL, or a signal has stopped it"
                self.watcher.said(f"{self.rank.name} does not answer ({why}); the rank joins when it answers")
                on_silent()
            await asking
            self.answered = True
        except (MeshError, ConnectionError):
            self._channels.forget(number)
            raise
        finally:
            asking.cancel()
        await self._opened
        await self.request("initialize", initialize)

    def send(self, message: Message) -> None:
        """Send a message of an IDE. The answer goes to the watcher."""
        self.stops.asked(message)
        if message["type"] == "request":
            if message["command"] == "evaluate":
                self.evaluating.add(message["seq"])
            elif message["command"] in RESUMING:
                self.pausing = False
            elif message["command"] == "pause" and not self.stops:
                self.pausing = True
        data = encode(message)
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            self._channels.program.post(ops.ToEngine(self.channel, part))

    async def request(self, command: str, arguments: Fields) -> Fields:
        """Send a request to the engine and return the body of its answer. Raises DebugAdapterError if it refuses."""
        if self._closed:
            raise DebugAdapterError(f"{self.rank.name} has ended")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        number = self._waiting.add(answer)
        self.send({"seq": number, "type": "request", "command": command, "arguments": arguments})
        try:
            message = await answer
        finally:
            self._waiting.remove(number)
        if not message.get("success"):
            raise DebugAdapterError(str(message.get("message") or f"{command} was refused"))
        return message.get("body") or {}

    async def resume(self, command: str, arguments: Fields, *, looked: bool | None) -> None:
        """Send a request that resumes threads (`RESUMING`), and set ``looked``. Raises as `request`."""
        self.looked = looked
        try:
            await self.request(command, arguments)
        except DebugAdapterError:
            self.looked = None  # the next stop is not the requested one
            raise

    def give_up(self, *, stay: bool) -> None:
        """Close the channel, as the IDE is gone without a goodbye. ``stay`` as in `open`."""
        if not self._closed and self.channel:
            self._channels.program.post(ops.Close(self.channel, stay))

    # -- what the program tells

    def receive(self, report: ops.OfChannel) -> None:
        """Take a report of this channel."""
        match report:
            case ops.FromEngine():
                self._channels.program.post(ops.Taken(self.channel, len(report.data)))
                for message in self._decoder.receive_data(report.data):
                    self._message(message)
            case ops.Opened():
                self.price = report.price
                if self._opened is not None and not self._opened.done():
                    self._opened.set_result(None)
            case ops.Waiting():
                self.watcher.said(f"{self.rank.name} {report.text}")
            case ops.Said():
                self.watcher.said(f"{self.rank.name}: {report.text}")
            case ops.Raised():
                self.watcher.raised(report.rows)
            case ops.Closed():
                self._end(report.why)

    def _end(self, why: str) -> None:
        self._closed = True
        self.pausing = False
        self.stops.clear()
        self.evaluating.clear()
        error = DebugAdapterError(why or f"the IDE has detached from {self.rank.name}")
        for future in (self._opened, *self._waiting.clear()):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # retrieved: no warning if no task waits
        self.watcher.closed(why)

    def _message(self, message: Message) -> None:
        self.stops.said(message)
        if message["type"] == "event" and message["event"] == "stopped":
            self.pausing = False
        elif message["type"] == "response":
            number = message["request_seq"]
            self.evaluating.discard(number)
            answer = self._waiting.find(number)
            if answer is not None:
                if not answer.done():
                    answer.set_result(message)
                return
            if number >= _OWN:
                return  # no task waits for it any more
        self.watcher.message(message)


@dataclass(slots=True)
class Answers(Generic[K, T]):
    """What came in time, by who was asked."""

    said: dict[K, T] = field(default_factory=dict)
    refused: dict[K, DebugAdapterError] = field(default_factory=dict)
    silent: list[K] = field(default_factory=list)


async def ask_each(asks: Mapping[K, Coroutine[object, None, T]], seconds: float | None = None) -> Answers[K, T]:
    """Put all questions at once, and return when all are answered, or after ``seconds``: `SILENT_SECONDS`."""
    answers: Answers[K, T] = Answers()
    tasks = {key: asyncio.ensure_future(ask) for key, ask in asks.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=SILENT_SECONDS if seconds is None else seconds)
        for key, task in tasks.items():
            if not task.done():
                answers.silent.append(key)
                continue
            try:
                answers.said[key] = task.result()
            except DebugAdapterError as error:
                answers.refused[key] = error
    finally:
        for task in tasks.values():
            task.cancel()
    return answers

"""The engines of ranks, as the router talks to them: messages through the program, each on a channel of its own.

::

    opening --dap.opened--> open --dap.closed--> closed
       '---------dap.closed, refused-------------^
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshrt.debug.dap.router.asking import SILENT_SECONDS
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.router.ranks import Rank
from meshrt.debug.dap.standing import Standing
from meshrt.debug.dap.wire import RESUMING, Message, MessageDecoder, encode
from meshrt.errors import DebugAdapterError, MeshError
from meshrt.hooks.facts import Body

__all__ = ["Channels", "RankLink", "Watcher"]

#: Numbers of the router's own requests; an IDE does not get that far.
_OWN = 1 << 24
#: Bytes of one control message.
_CHUNK = 256 << 10


@dataclass(slots=True)
class Watcher:
    """What is done with what an engine says. On the loop."""

    #: An event, or the answer to a request that was sent with `RankLink.send`.
    message: Callable[[Message], None]
    #: Something for a person to read; it names the rank.
    said: Callable[[str], None]
    #: Expressions of breakpoints that have raised.
    raised: Callable[[Sequence[Body]], None]
    #: The channel has ended: why, or "" after a goodbye.
    closed: Callable[[str], None]


class Channels:
    """All channels of this router. On the loop."""

    def __init__(self, program: ProgramLink) -> None:
        self.program = program
        self._links: dict[int, RankLink] = {}
        self._numbers = itertools.count(1)

    def admit(self, link: RankLink) -> int:
        """Return the number of a new channel."""
        number = next(self._numbers)
        self._links[number] = link
        return number

    def forget(self, number: int) -> None:
        """A channel has come to nothing."""
        self._links.pop(number, None)

    def event(self, name: str, body: Body) -> bool:
        """Take an event of the program; returns False if it is none of a channel."""
        link = self._links.get(int(body.get("channel") or 0))
        if link is None:
            return name.startswith("dap.") and "channel" in body
        if name == "dap.closed":
            del self._links[link.channel]
        link.event(name, body)
        return True

    def lost(self, why: str) -> None:
        """The program has ended, or is left."""
        for number, link in list(self._links.items()):
            del self._links[number]
            link.event("dap.closed", {"why": why})


@dataclass(slots=True, eq=False)
class RankLink:
    """A channel to the engine of one rank. On the loop."""

    rank: Rank
    watcher: Watcher
    _channels: Channels
    channel: int = 0
    #: Threads of the engine that stand.
    standing: Standing = field(default_factory=Standing)
    price: str = ""
    #: The rank has answered the wish to attach: what keeps it from joining now is its engine.
    answered: bool = False
    #: Whether a person looks at this rank, and waits for its next stop, whatever else stands; False: they look at
    #: another one, and it does not take their eyes off that. None: nobody has asked for that stop.
    looked: bool | None = None
    #: A pause has been asked for, and nothing stands for it yet.
    pausing: bool = False
    _opened: asyncio.Future[None] | None = None
    _decoder: MessageDecoder = field(default_factory=MessageDecoder)
    _numbers: Any = field(default_factory=lambda: itertools.count(_OWN))
    _waiting: dict[int, asyncio.Future[Message]] = field(default_factory=dict)
    #: Numbers of requests to evaluate that are not answered yet.
    _evaluating: set[int] = field(default_factory=set)
    _closed: bool = False

    @property
    def busy(self) -> bool:
        """Whether it is at work on something that it was asked to evaluate."""
        return bool(self._evaluating)

    async def open(
        self, initialize: dict[str, Any], *, stay: bool, session: int, on_silent: Callable[[], None] = lambda: None
    ) -> None:
        """Have the rank load its engine, and greet it. Raises MeshError: the rank refuses, or ends.

        Args:
            session: Whose console may have set breakpoints that go with it; 0: none.
            on_silent: Called if it does not answer for a while; a person has been told.
        """
        self._opened = asyncio.get_running_loop().create_future()
        self.channel = number = self._channels.admit(self)
        mesh, rank = self.rank.key
        asking = asyncio.ensure_future(
            self._channels.program.ask("dap.open", mesh=mesh, rank=rank, channel=number, stay=stay, session=session)
        )
        try:
            await asyncio.wait([asking], timeout=SILENT_SECONDS)
            if not asking.done():
                why = "C code holds its GIL, or a signal has stopped it"
                self.watcher.said(f"{self.rank.name} does not answer ({why}); it joins when it does")
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
        """Send a message of an IDE; its answer goes to the watcher."""
        self.standing.asked(message)
        if message["type"] == "request":
            if message["command"] == "evaluate":
                self._evaluating.add(message["seq"])
            elif message["command"] in RESUMING:
                self.pausing = False
            elif message["command"] == "pause" and not self.standing:
                self.pausing = True
        data = encode(message)
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            self._channels.program.post("dap.data", channel=self.channel, data=part)

    async def request(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask the engine, and return the body of its answer. Raises DebugAdapterError with its refusal."""
        if self._closed:
            raise DebugAdapterError(f"{self.rank.name} has ended")
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send({"seq": number, "type": "request", "command": command, "arguments": arguments})
        try:
            message = await answer
        finally:
            self._waiting.pop(number, None)
        if not message.get("success"):
            raise DebugAdapterError(str(message.get("message") or f"{command} was refused"))
        return message.get("body") or {}

    async def resume(self, command: str, arguments: dict[str, Any], *, looked: bool | None) -> None:
        """Ask for what lets threads go on (`RESUMING`); ``looked``: as it will be. Raises as `request`."""
        self.looked = looked
        try:
            await self.request(command, arguments)
        except DebugAdapterError:
            self.looked = None  # what stops next is not what was asked for
            raise

    def give_up(self, *, stay: bool) -> None:
        """The IDE has gone without a goodbye."""
        if not self._closed and self.channel:
            self._channels.program.post("dap.close", channel=self.channel, stay=stay)

    # -- what the program tells

    def event(self, name: str, body: Body) -> None:
        """Take an event of this channel."""
        if name == "dap.data":
            data = bytes(body["data"])
            self._channels.program.post("dap.ack", channel=self.channel, bytes=len(data))
            for message in self._decoder.receive_data(data):
                self._message(message)
        elif name == "dap.opened":
            self.price = str(body.get("price", ""))
            if self._opened is not None and not self._opened.done():
                self._opened.set_result(None)
        elif name == "dap.waiting":
            self.watcher.said(f"{self.rank.name} {body['text']}")
        elif name == "dap.said":
            self.watcher.said(f"{self.rank.name}: {body['text']}")
        elif name == "dap.raised":
            self.watcher.raised(body["rows"])
        elif name == "dap.closed":
            self._end(str(body.get("why", "")))

    def _end(self, why: str) -> None:
        self._closed = True
        self.pausing = False
        self.standing.clear()
        self._evaluating.clear()
        error = DebugAdapterError(why or f"{self.rank.name} has been left")
        for future in (self._opened, *self._waiting.values()):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits is told; if nobody does, there is nothing to warn of
        self.watcher.closed(why)

    def _message(self, message: Message) -> None:
        self.standing.said(message)
        if message["type"] == "event" and message["event"] == "stopped":
            self.pausing = False
        elif message["type"] == "response":
            number = message["request_seq"]
            self._evaluating.discard(number)
            answer = self._waiting.get(number)
            if answer is not None:
                if not answer.done():
                    answer.set_result(message)
                return
            if number >= _OWN:
                return  # nobody waits for it any more
        self.watcher.message(message)

"""Stand-ins for what surrounds the router: a program with engines in its ranks, and an IDE on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from meshrt.debug.dap.operations import Close, Open, RanksFound, ToEngine, Which
from meshrt.debug.dap.router.channels import Channels
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.wire import Message, MessageDecoder, encode, response
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Data, Nothing, Operation

__all__ = ["FakeIde", "FakeProgram", "request", "run", "settled", "until"]


def request(number: int, command: str, **arguments: Any) -> Message:
    """A request of an IDE."""
    return {"type": "request", "seq": number, "command": command, "arguments": arguments}


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play a scene on a loop of its own, within a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await scene()

    asyncio.run(limited())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until that is so."""
    while not condition():  # noqa: ASYNC110  # whatever changes it, the loop does so by itself
        await asyncio.sleep(0)


async def settled() -> None:
    """Let everything happen that needs no more than turns of the loop."""
    for _ in range(50):
        await asyncio.sleep(0)


def _agree(_key: Key, asked: Message) -> Message:
    return response(asked)


class FakeProgram:
    """What a `ProgramLink` leads to. Its engines answer with ``engine``, which agrees to everything by default."""

    def __init__(
        self,
        *ranks: Rank,
        opens: bool = True,
        price: str = "",
        engine: Callable[[Key, Message], Message] = _agree,
    ) -> None:
        self.ranks = list(ranks)
        self.channels = Channels(cast(ProgramLink, self))
        #: No command of the debugger is run on it.
        self.program = None
        self.is_elsewhere = False
        self._opens = opens
        #: What its engines say that they cost.
        self._price = price
        self._engine = engine
        self._decoders: dict[int, MessageDecoder] = {}
        #: Its answers to other questions, by operation.
        self.answers: dict[str, Data] = {}
        #: Where events go; a router takes them in the place of the channels.
        self.on_event: Callable[[str, Body], object] = self.channels.event
        #: Ranks by the number of the channel that was asked for, and set at the first.
        self.opened: dict[int, Key] = {}
        self.is_asked = asyncio.Event()
        self.closed: list[int] = []
        #: Ranks that do not answer until then.
        self.silent: dict[Key, asyncio.Event] = {}
        #: Commands that engines were sent, and how often it was asked which ranks there are.
        self.asked: list[tuple[Key, str]] = []
        self.looks = 0

    def linked(self, _program: object, on_event: Callable[[str, Body], None], _on_close: object) -> FakeProgram:
        """Stand for `ProgramLink`."""
        self.on_event = on_event
        return self

    # -- ProgramLink

    async def ask(self, operation: Operation[Data]) -> Data:
        """Answer a question."""
        if isinstance(operation, Which):
            self.looks += 1
            found = list(self.ranks)
            await asyncio.sleep(0)
            return RanksFound(found)
        if operation.name() in self.answers:
            return self.answers[operation.name()]
        assert isinstance(operation, Open)
        self.opened[operation.channel] = key = (operation.mesh, operation.rank)
        self.is_asked.set()
        if (awakes := self.silent.get(key)) is not None:
            await awakes.wait()
        if self._opens:
            self.tell("dap.opened", channel=operation.channel, price=self._price)
        return Nothing()

    async def which(self, mesh: str, ranks: str) -> Sequence[Rank]:
        """Return all ranks."""
        return cast(RanksFound, await self.ask(Which(mesh, ranks))).ranks

    def post(self, operation: Operation[Data]) -> None:
        """Take an operation whose answer is not waited for."""
        if isinstance(operation, Close):
            self.closed.append(operation.channel)
            self.tell("dap.closed", channel=operation.channel, why="")
        elif isinstance(operation, ToEngine):
            channel = operation.channel
            for asked in self._decoders.setdefault(channel, MessageDecoder()).receive_data(operation.data):
                self.asked.append((self.opened[channel], asked["command"]))
                self.say(self.opened[channel], self._engine(self.opened[channel], asked))

    # -- the test's hands

    def tell(self, name: str, **body: Any) -> None:
        """Have an event come soon."""
        asyncio.get_running_loop().call_soon(self.on_event, name, body)

    def say(self, key: Key, message: Message) -> None:
        """Have the engine of a rank say something, on the last channel that was opened to it."""
        channel = max(number for number, whose in self.opened.items() if whose == key)
        self.tell("dap.data", channel=channel, data=encode(message))


class FakeIde:
    """A connection as its view knows it (`meshrt.debug.dap.router.view.Peer`)."""

    def __init__(self, program: FakeProgram, channels: Channels | None = None) -> None:
        self.program = program
        self.channels = channels or program.channels
        self.written: list[Message] = []
        self.announced: list[Body] = []
        self._answers: dict[str, Callable[[Message], None]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.left = asyncio.Event()

    def ask(self, command: str, arguments: dict[str, Any], answered: Callable[[Message], None]) -> None:
        """Take an announcement."""
        assert command == "startDebugging"
        self.announced.append(arguments["configuration"])
        self._answers[arguments["configuration"]["name"]] = answered

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that takes a while."""
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def write(self, message: Message) -> None:
        """Take a message."""
        self.written.append(message)

    def end(self, *, left: bool = False) -> None:
        """The session is over."""
        self.left.set()

    hang_up = end

    # -- the test's hands

    def refuse(self, name: str, why: str) -> None:
        """Open no session for what was announced."""
        self._answers[name]({"success": False, "message": why})

    def events(self, name: str) -> list[Body]:
        """The bodies of the events of that name."""
        return [message["body"] for message in self.written if message.get("event") == name]

    def answer(self, number: int) -> Message | None:
        """The answer to a request, if it has been given."""
        return next((message for message in self.written if message.get("request_seq") == number), None)

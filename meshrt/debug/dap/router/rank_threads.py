"""Ranks that are threads, as requests of an IDE reach them: one or several engines, in the numbers of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from meshrt.debug.dap.router.channels import ask_each
from meshrt.debug.dap.router.console import Console, hint, mesh_line
from meshrt.debug.dap.router.ids import Ids
from meshrt.debug.dap.router.members import RUNNING, SECONDS, WHY_NOT, Member
from meshrt.debug.dap.router.ranks import Key, Names
from meshrt.debug.dap.router.row_events import RowEvents
from meshrt.debug.dap.router.settings import Settings
from meshrt.debug.dap.router.sources import Sources
from meshrt.debug.dap.router.thread_events import ThreadEvents
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import RESUMING, Fields, Message, arguments_of, event
from meshrt.errors import DebugAdapterError, UsageError
from meshrt.selection import counted

__all__ = ["ROWS_FROM", "RankThreads"]

#: Above so many ranks a row is a class of them.
ROWS_FROM = 32
_GREETING = (
    "lines that begin with mesh are commands for all of them: mesh where, mesh p ACTOR EXPRESSION, mesh n, mesh c, "
    "mesh pause, mesh help, ..."
)


class RankThreads:
    """The ranks of one session. On the router's loop.

    Args:
        said: Writes a line on the debug console.
        leave: Leaves the ranks; called with the request of the IDE, which it answers.
        step_all: Whether a step steps all stopped ranks (``meshStep``).
        local_roots: As in `Sources`.
    Attributes:
        members: The ranks, by key.
        shown: What the IDE sees instead of ranks: each is a thread, or, if there are very many, a class of them is.
    """

    def __init__(
        self,
        peer: Peer,
        names: Names,
        console: Console,
        said: Callable[[str], None],
        leave: Callable[[Message], Awaitable[None]],
        *,
        step_all: bool,
        local_roots: Sequence[str] = (),
    ) -> None:
        self._peer = peer
        self.members: dict[Key, Member] = {}
        self.ids: Ids[Key] = Ids()
        self._names = names
        self.settings = Settings(self.members, names, self._changed)
        self.shown: ThreadEvents | RowEvents = ThreadEvents(peer, self.members, self.ids)
        self._console = console
        #: Asks the program, for requests of the IDE.
        self.program = peer.channels.program
        self.sources = Sources(self.program, local_roots)
        self._said = said
        self.leave = leave
        self.step_all = step_all

    def _changed(self, breakpoint: Fields) -> None:
        self.sources.note([breakpoint])
        self._peer.write(event("breakpoint", reason="changed", breakpoint=breakpoint))

    async def configured(self) -> None:
        """The IDE has sent its initial settings."""
        await self.settings.configured()
        self.shown.begin()
        self._said(f"meshrt: {counted(len(self.members))}; {_GREETING}")

    def runs(self, member: Member) -> None:
        """A rank has resumed: forget the numbers of its last stop."""
        self.ids.forget(member.rank.key, "frameId", "variablesReference")
        member.place = RUNNING
        self.shown.runs(member)

    def stops(self, member: Member, body: Fields) -> None:
        """A rank has stopped. ``body`` is that of the event, as its engine has sent it."""
        hit = [self.settings.point(member.rank.key, each) for each in body.get("hitBreakpointIds") or ()]
        known = [point for point in hit if point is not None]
        why = {**body, "allThreadsStopped": False, "hitBreakpointIds": known}
        self.shown.stopped(member, int(body.get("threadId") or 1), why)

    def show_rows(self) -> None:
        """Show rows from now on if there are too many ranks for a thread each."""
        threads = self.shown
        if len(self.members) <= ROWS_FROM or not isinstance(threads, ThreadEvents):
            return
        self.shown = RowEvents(self._peer, self.members, self._names, self.ids.unused)
        threads.withdraw()
        if threads.begun:
            what = "from now on, one thread stands for all ranks with equal stacks"
            self._said(f"meshrt: more than {ROWS_FROM} ranks: {what}")
            self.shown.begin()
        for member in self.members.values():
            for stop in member.link.stops.events():
                self.stops(member, stop["body"])

    # -- threads

    async def threads(self) -> list[Fields]:
        """Return the threads, as the request of this name is answered."""
        while True:
            shown = self.shown
            threads = await shown.threads()
            if shown is self.shown:  # otherwise it has become another meanwhile
                return threads

    def at(self, number: int | None) -> list[tuple[Member, int]]:
        """Return the ranks of a thread of this session, and their threads. Raises UsageError."""
        found = self.shown.at(number or 0)
        if found is None:
            raise UsageError(f"thread {number or 0} no longer exists")
        silent = [member.rank.key for member, _ in found if not member.ready]
        if silent:
            raise UsageError(f"no answer from {self._names.of(silent)} yet; requests are refused until then")
        return found

    def stopped(self) -> list[tuple[Member, int]]:
        """Return the ranks that are stopped, and a thread of each."""
        return [(member, member.thread) for member in self.members.values() if member.link.stops]

    def pausing(self) -> list[tuple[Member, int]]:
        """Return the ranks of which a pause is requested, and a thread of each."""
        return [(member, member.thread) for member in self.members.values() if member.link.pausing]

    async def request(
        self, threads: Sequence[tuple[Member, int]], command: str, arguments: Fields, *, looked: Member | None = None
    ) -> None:
        """Send a request to several ranks at once. Raises DebugAdapterError if all refuse.

        The user is told of single ranks that refuse or do not answer.

        Args:
            looked: The rank that the user has chosen; None for none.
        """
        more = {key: value for key, value in arguments.items() if key not in ("threadId", "targetId")}

        async def ask(member: Member, thread: int) -> None:
            asked = {**more, "threadId": thread}
            if command in RESUMING:
                await member.link.resume(command, asked, looked=None if looked is None else member is looked)
            else:
                await member.link.request(command, asked)

        asks = {(member.rank.key, thread): ask(member, thread) for member, thread in threads}
        names = {member.rank.key: member.rank.name for member, _ in threads}
        answers = await ask_each(asks)
        if asks and len(answers.refused) == len(asks):
            raise next(iter(answers.refused.values()))
        for (key, _), error in answers.refused.items():
            self._said(f"meshrt: {names[key]}: {error}")
        for key, _ in answers.silent:
            self._said(f"meshrt: {names[key]} does not answer: {WHY_NOT}; {command} is done when the rank answers")

    # -- one thread, source, frame or variable

    async def ask_at(self, thread: int | None, message: Message) -> Fields:
        """Put a request to the first rank of a thread. Raises MeshError, TimeoutError."""
        member, there = self.at(thread)[0]
        body = await self._ask(member, message, {"threadId": there})
        if message["command"] == "stackTrace":
            for frame in body.get("stackFrames") or ():
                frame["id"] = self.ids.here(member.rank.key, "frameId", int(frame["id"]))
            self.sources.note(body.get("stackFrames"))
        return body

    async def ask_of_source(self, number: int, message: Message) -> Fields:
        """Put a request to the rank that has a source; 0: a file, which any rank may have. Raises as `ask_at`."""
        found = self.ids.there(number, "sourceReference") if number else None
        if found is None:
            member, more = next(iter(self.members.values()), None), {}
        else:
            source = arguments_of(message).get("source") or {}
            member = self.members.get(found[0])
            more = {"sourceReference": found[1], "source": {**source, "sourceReference": found[1]}}
        if member is None:
            raise UsageError("the rank of this source has ended")
        return await self._ask(member, message, more)

    async def ask_about(self, kind: str, number: int | None, message: Message) -> Fields:
        """Put a request to the rank to which a number of this session belongs. Raises as `ask_at`.

        Args:
            kind: The argument that has the number: ``frameId`` or ``variablesReference``.
        """
        found = self.ids.there(number or 0, kind)
        member = self.members.get(found[0]) if found is not None else None
        if found is None or member is None:
            raise UsageError("this belongs to an earlier stop" if number else "no rank is chosen")
        return await self._ask(member, message, {kind: found[1]})

    async def _ask(self, member: Member, message: Message, there: Fields) -> Fields:
        arguments = {**self.sources.for_engine(arguments_of(message)), **there}
        async with asyncio.timeout(SECONDS):
            body = await member.link.request(message["command"], arguments)
        return self.ids.outward(member.rank.key, body)

    async def evaluate(self, line: str, frame: int | None, message: Message) -> Fields:
        """Run a line of the debug console. Raises as `ask_at`."""
        # Editors may name the stack frame of a stop that is over. Then no rank is chosen.
        found = self.ids.there(frame or 0, "frameId")
        member = self.members.get(found[0]) if found is not None else None
        if member is None or mesh_line(line):
            text = await self._console.run(line, None if member is None else member.link)
            return {"result": text, "variablesReference": 0}
        try:
            return await self.ask_about("frameId", frame, message)
        except DebugAdapterError as error:
            said = hint(line, member.rank.name)
            if not said:
                raise
            raise DebugAdapterError(f"{str(error).rstrip()}\n{said}") from None

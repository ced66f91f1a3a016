"""What an IDE has set in a session in which ranks are threads: breakpoints, exceptions. Late ranks have it, too.

A breakpoint here is one of each engine: it is verified if one of them has it, and known by a number of this session. A
rank that does not answer keeps no other waiting: the IDE is told what the others say, and again when it has answered.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meshrt.debug.dap.router.channels import SILENT_SECONDS
from meshrt.debug.dap.router.members import Member, ask_all
from meshrt.debug.dap.router.ranks import Key, Names
from meshrt.debug.dap.wire import Fields
from meshrt.errors import DebugAdapterError

__all__ = ["Settings"]


@dataclass(slots=True, eq=False)
class _Breakpoint:
    """One breakpoint of the IDE, in all ranks."""

    number: int
    line: int | None
    names: Names
    #: What an engine says of it: one that has it, if there is one.
    said: Fields = field(default_factory=dict)
    #: Whether ranks have it; None: no answer yet.
    ranks: dict[Key, bool | None] = field(default_factory=dict)
    #: `state` when the IDE was told of it; None: it was not yet.
    told: tuple[object, ...] | None = None

    def take(self, key: Key, said: Fields) -> None:
        """Take what an engine says of it."""
        self.ranks.pop(key, None)  # it may answer anew
        verified = bool(said.get("verified"))
        if True not in self.ranks.values() and (verified or False not in self.ranks.values()):
            self.said = dict(said)
        self.ranks[key] = verified

    def _that(self, verified: bool | None) -> list[Key]:
        return [key for key, each in self.ranks.items() if each is verified]

    def shown(self) -> Fields:
        """Return it as the IDE knows it."""
        good, bad, silent = self._that(True), self._that(False), self._that(None)
        shown = {"line": self.line, **self.said, "id": self.number, "verified": bool(good)}
        notes = []
        if not self.ranks:
            notes.append("no rank is attached")
        if good and bad:
            notes.append(f"not set in {self.names.of(bad)}")
        if silent:
            notes.append(f"no answer yet from {self.names.of(silent)}")
        if notes:
            shown["message"] = "; ".join(notes)
        return {key: value for key, value in shown.items() if value is not None}

    def state(self) -> tuple[object, ...]:
        """Return the facts of which the user is told again when they change."""
        return bool(self._that(True)), len(self._that(False)), bool(self._that(None))


@dataclass(slots=True, eq=False)
class _Asked:
    """A request of the IDE that sets breakpoints, and those."""

    command: str
    arguments: Fields
    breakpoints: list[_Breakpoint]


class Settings:
    """The settings of one session. On the router's loop.

    Args:
        members: The ranks, by key, whether they have all settings or not yet.
        changed: Called with a breakpoint of which the IDE has been told something else.
    """

    def __init__(self, members: Mapping[Key, Member], names: Names, changed: Callable[[Fields], None]) -> None:
        self._members = members
        self._names = names
        self._changed = changed
        self._numbers = itertools.count(1)
        #: By what each of them replaces: the request, and the source.
        self._asked: dict[tuple[str, str], _Asked] = {}
        #: What else is set, by what each replaces: the command, and the arguments.
        self._others: dict[str, tuple[str, Fields]] = {}
        self._configured = False
        #: How often something was set.
        self._version = 0
        #: Breakpoints by rank and number there.
        self._points: dict[tuple[Key, int], _Breakpoint] = {}
        #: One for each rank that has not answered yet.
        self._setting: set[asyncio.Task[None]] = set()

    def point(self, key: Key, number: int) -> int | None:
        """Return the number here of a breakpoint of a rank; None: the IDE does not know it."""
        known = self._points.get((key, number))
        return None if known is None else known.number

    def forget(self, key: Key) -> None:
        """A rank has ended."""
        self._points = {point: known for point, known in self._points.items() if point[0] != key}
        for asked in self._asked.values():
            for each in asked.breakpoints:
                each.ranks.pop(key, None)
                self._tell(each)

    def say(self, key: Key, said: Fields) -> None:
        """An engine reports a change of a breakpoint."""
        known = self._points.get((key, int(said.get("id", -1))))
        if known is not None:
            known.take(key, said)
            self._tell(known)

    async def set_breakpoints(
        self, command: str, source: str, lines: Sequence[int | None], arguments: Fields
    ) -> Fields:
        """Set breakpoints in place of those of the same command and source, and return the answer for the IDE.

        Args:
            lines: Of each of them; None: it has no line.
            arguments: What engines are sent.
        """
        wanted = [_Breakpoint(next(self._numbers), line, self._names) for line in lines]
        asked = _Asked(command, arguments, wanted)
        place = (command, source)
        replaced = self._asked.get(place)
        if replaced is not None:
            gone = set(replaced.breakpoints)
            self._points = {point: known for point, known in self._points.items() if known not in gone}
        self._asked[place] = asked
        self._version += 1
        tasks = []
        for member in self._members.values():
            if member.ready:
                for each in wanted:
                    each.ranks[member.rank.key] = None
                tasks.append(asyncio.create_task(self._set_in(member, asked)))
        for task in tasks:
            self._setting.add(task)
            task.add_done_callback(self._setting.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=SILENT_SECONDS)
        for each in wanted:
            each.told = each.state()
        return {"breakpoints": [each.shown() for each in wanted]}

    async def set_other(self, command: str, arguments: Fields, replaces: str = "") -> Fields | None:
        """Set something else, and return the answer of the first engine; None: there is none.

        Args:
            replaces: What it replaces, of the same command; "": all of it.
        """
        self._others[f"{command} {replaces}"] = command, arguments
        self._version += 1
        answers = await ask_all(self._members.values(), command, arguments)
        return next((body for _, body in answers), None)

    async def configured(self) -> None:
        """The IDE has sent its initial settings."""
        self._configured = True
        self._version += 1
        await ask_all(self._members.values(), "configurationDone", {})

    async def give(self, member: Member) -> None:
        """Set all of it in a rank that has come, which is ready then. Raises DebugAdapterError: it refuses, or ends."""
        configured, given = False, -1
        while given != self._version:  # what is set meanwhile is set in those that are ready, and it is not yet
            given = self._version
            for asked in tuple(self._asked.values()):
                await self._set_in(member, asked)
            for command, arguments in tuple(self._others.values()):
                await member.link.request(command, arguments)
            if self._configured and not configured:
                configured = True
                await member.link.request("configurationDone", {})
        if self._members.get(member.rank.key) is not member:
            raise DebugAdapterError(f"{member.rank.name} has ended")
        member.ready = True

    async def _set_in(self, member: Member, asked: _Asked) -> None:
        """Set breakpoints in one rank, however long it takes to answer."""
        key = member.rank.key
        try:
            said = list((await member.link.request(asked.command, asked.arguments)).get("breakpoints") or ())
        except DebugAdapterError as error:
            said = [{"verified": False, "message": str(error)} for _ in asked.breakpoints]
        if self._members.get(key) is not member or asked not in self._asked.values():
            return  # it has ended, or the IDE has set others meanwhile
        for each, point in zip(asked.breakpoints, said, strict=False):
            each.take(key, point)
            if "id" in point:
                self._points[key, int(point["id"])] = each
            self._tell(each)

    def _tell(self, each: _Breakpoint) -> None:
        """Tell the IDE, if it has been told something else."""
        if each.told is not None and each.told != each.state():
            each.told = each.state()
            self._changed(each.shown())

"""Requests of an IDE to ranks that are threads: to one or several engines, in the numbers of this session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshrt.debug.dap.router.asking import ask_each
from meshrt.debug.dap.router.console import MESH_LINE, Console, hint
from meshrt.debug.dap.router.ids import Ids
from meshrt.debug.dap.router.members import SECONDS, Member, Shown
from meshrt.debug.dap.router.ranks import Key, Names, counted
from meshrt.debug.dap.router.settings import BREAKPOINTS, EXCEPTIONS, Settings
from meshrt.debug.dap.router.sources import Sources
from meshrt.debug.dap.wire import RESUMING
from meshrt.errors import DebugAdapterError, UsageError

__all__ = ["WHY_NOT", "ThreadRequests"]

WHY_NOT = "the rank is in C code, or at work on what it was asked (mesh pause interrupts that)"
_STEPS = ("next", "stepIn", "stepOut")
_GREETING = (
    "lines that begin with mesh are for all of them: mesh where, mesh p ACTOR EXPRESSION, mesh n, mesh c, mesh pause, "
    "mesh help, ..."
)
#: Requests about one frame, variable or source -> the argument that says which.
_ABOUT = {
    "scopes": "frameId", "variables": "variablesReference", "setVariable": "variablesReference",
    "evaluate": "frameId", "setExpression": "frameId", "completions": "frameId", "stepInTargets": "frameId",
}  # fmt: skip


class ThreadRequests:
    """The requests of one session. On the router's loop.

    Args:
        members: The ranks, by key.
        shown: What the IDE sees instead of ranks. It is replaced when there are very many ranks.
        said: Writes a line on the debug console.
        runs: Called with a rank that resumes.
        step_all: Whether a step steps all stopped ranks (``meshStep``).
    """

    def __init__(
        self,
        members: Mapping[Key, Member],
        shown: Shown,
        ids: Ids[Key],
        names: Names,
        settings: Settings,
        console: Console,
        sources: Sources,
        said: Callable[[str], None],
        runs: Callable[[Member], None],
        *,
        step_all: bool,
    ) -> None:
        self._members = members
        self.shown = shown
        self._ids = ids
        self._names = names
        self._settings = settings
        self._console = console
        self._sources = sources
        self._said = said
        self._runs = runs
        self._step_all = step_all

    async def answer(self, command: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the body of the answer. Raises MeshError, ConnectionError, TimeoutError; others for invalid DAP."""
        if command in BREAKPOINTS:
            return await self._settings.set_breakpoints(command, arguments)
        if command == EXCEPTIONS:
            return await self._settings.set_exceptions(arguments)
        if command == "configurationDone":
            await self._settings.configured()
            self.shown.begin()
            self._said(f"meshrt: {counted(len(self._members))}; {_GREETING}")
            return None
        if command == "threads":
            shown = None
            while shown is not self.shown:  # it may have become another meanwhile
                shown = self.shown
                threads = await shown.threads()
            return {"threads": threads}
        if command == "continue":
            return await self._continue(arguments)
        if command == "pause":
            await self._request_of(self._at(arguments), command)
            return None
        if command in _STEPS:
            every = self._step_all and not arguments.get("singleThread")
            chosen = self._at(arguments)
            await self._request_of(self._standing() if every else chosen, command, arguments, looked=chosen[0][0])
            return None
        if command in ("stackTrace", "exceptionInfo", "goto", "gotoTargets", "source"):
            return await self._of_thread(command, arguments)
        if command == "evaluate":
            return await self._evaluate(arguments)
        if command in _ABOUT:
            return await self._about(command, arguments)
        if command == "modules":
            return {"modules": [], "totalModules": 0}
        if command == "terminate":
            raise UsageError("ranks are ended by their program; disconnect leaves them")
        raise UsageError(f"{command} is not for a session in which ranks are threads")

    # -- threads

    def _at(self, arguments: dict[str, Any]) -> list[tuple[Member, int]]:
        """Return the ranks of a thread of this session, and their threads. Raises UsageError."""
        number = int(arguments.get("threadId") or 0)
        found = self.shown.at(number)
        if found is None:
            raise UsageError(f"there is no thread {number} any more")
        silent = [member.rank.key for member, _ in found if not member.ready]
        if silent:
            raise UsageError(
                f"no answer of {self._names.of(silent)} yet; nothing can be asked for there until it joins"
            )
        return found

    def _standing(self) -> list[tuple[Member, int]]:
        return [(member, member.thread) for member in self._members.values() if member.link.standing]

    def _pausing(self) -> list[tuple[Member, int]]:
        return [(member, member.thread) for member in self._members.values() if member.link.pausing]

    async def _request_of(
        self,
        threads: Sequence[tuple[Member, int]],
        command: str,
        arguments: dict[str, Any] | None = None,
        *,
        looked: Member | None = None,
    ) -> None:
        """Send a request to several ranks at once. Raises DebugAdapterError if all refuse.

        The user is told of single ranks that refuse or do not answer.

        Args:
            looked: The rank that the user has chosen; None for none.
        """
        more = {key: value for key, value in (arguments or {}).items() if key not in ("threadId", "targetId")}

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
            self._said(f"meshrt: {names[key]} does not answer: {WHY_NOT}; {command} when it does")

    async def _continue(self, arguments: dict[str, Any]) -> dict[str, Any]:
        single = bool(arguments.get("singleThread"))
        # If no rank is stopped, it withdraws a pause for which no rank has stopped yet.
        threads = self._at(arguments) if single else self._standing() or self._pausing()
        await self._request_of(threads, "continue")
        for member, _ in threads:
            if not member.link.standing:  # otherwise it has stopped again, or has not resumed
                self._runs(member)
        return {"allThreadsContinued": not single}

    # -- one frame, variable or source

    async def _of_thread(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = dict(arguments)
        if command == "source" or (command == "gotoTargets" and "threadId" not in arguments):
            source = arguments.get("source") or {}
            reference = int(source.get("sourceReference") or arguments.get("sourceReference") or 0)
            found = self._ids.there(reference, "sourceReference") if reference else None
            if found is None:
                member = next(iter(self._members.values()), None)
            else:
                member = self._members.get(found[0])
                text = await self._sources.text(reference)
                if text is not None and command == "source":
                    return {"content": text}
                asked["sourceReference"] = found[1]
                asked["source"] = {**source, "sourceReference": found[1]}
            if member is None:
                raise UsageError("its rank has ended")
        else:
            member, thread = self._at(arguments)[0]
            asked["threadId"] = thread
        body = await self._ask(member, command, asked)
        if command == "stackTrace":
            for frame in body.get("stackFrames") or ():
                frame["id"] = self._ids.here(member.rank.key, "frameId", int(frame["id"]))
            self._sources.note(body.get("stackFrames"))
        return body

    async def _about(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        kind = _ABOUT[command]
        found = self._ids.there(int(arguments.get(kind) or 0), kind)
        member = self._members.get(found[0]) if found is not None else None
        if found is None or member is None:
            raise UsageError("this was of a stop that is over" if arguments.get(kind) else "no rank is chosen")
        return await self._ask(member, command, {**arguments, kind: found[1]})

    async def _ask(self, member: Member, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            body = await member.link.request(command, arguments)
        shown: dict[str, Any] = self._ids.outward(member.rank.key, body)
        return shown

    async def _evaluate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        line = str(arguments.get("expression", ""))
        if arguments.get("context") != "repl":
            return await self._about("evaluate", arguments)
        # Editors may name the stack frame of a stop that is over. Then no rank is chosen.
        found = self._ids.there(int(arguments.get("frameId") or 0), "frameId")
        member = self._members.get(found[0]) if found is not None else None
        if member is None or MESH_LINE.match(line):
            text = await self._console.run(line, None if member is None else member.link)
            return {"result": text, "variablesReference": 0}
        try:
            return await self._about("evaluate", arguments)
        except DebugAdapterError as error:
            said = hint(line, member.rank.name)
            if not said:
                raise
            raise DebugAdapterError(f"{str(error).rstrip()}\n{said}") from None

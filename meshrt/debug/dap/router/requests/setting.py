"""Requests that set something in all ranks: breakpoints, exceptions; and the one that ends them."""

from __future__ import annotations

from collections.abc import Sequence

from meshrt.debug.dap.router.rank_threads import RankThreads
from meshrt.debug.dap.router.requests.table import MeshSession, Request
from meshrt.debug.dap.router.view import LATER, Answer
from meshrt.debug.dap.wire import Message, arguments_of, response
from meshrt.hooks.operations import Data

#: The classes are found by their commands.
__all__: list[str] = []


class _Source(Data, frozen=True):
    path: str | None = None
    name: str | None = None


class _Breakpoint(Data, frozen=True):
    line: int | None = None


class SetBreakpoints(Request, frozen=True, tag="setBreakpoints"):
    """Replace the breakpoints of one source."""

    source: _Source = _Source()
    breakpoints: Sequence[_Breakpoint] | None = None

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        why = "set in the session of each rank"
        asked = arguments_of(message).get("breakpoints") or ()
        return {"breakpoints": [{"verified": False, "message": why, **each} for each in asked]}

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        place = self.source.path or self.source.name or ""
        lines = [each.line for each in self.breakpoints or ()]
        asked = ranks.sources.for_engine(arguments_of(message))
        answer = await ranks.settings.set_breakpoints(message["command"], place, lines, asked)
        ranks.sources.note(answer["breakpoints"])
        return answer


class SetFunctionBreakpoints(Request, frozen=True, tag="setFunctionBreakpoints"):
    """Replace all breakpoints of functions."""

    breakpoints: Sequence[_Breakpoint] | None = None

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        return {"breakpoints": []}

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        lines = [each.line for each in self.breakpoints or ()]
        return await ranks.settings.set_breakpoints(message["command"], "", lines, arguments_of(message))


class SetExceptionBreakpoints(Request, frozen=True, tag="setExceptionBreakpoints"):
    """Set which exceptions stop a thread."""

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        return {"breakpoints": []}

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        said = await ranks.settings.set_other(message["command"], arguments_of(message))
        return {"breakpoints": []} if said is None else said


class ConfigurationDone(Request, frozen=True, tag="configurationDone"):
    """The IDE has set all that it sets at first."""

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        mesh.write(response(message))
        mesh.announce()
        return LATER

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        await ranks.configured()
        return None


class SetDebuggerProperty(Request, frozen=True, tag="setDebuggerProperty"):
    """Set properties of the engines, as Visual Studio does: each stays until it is set again."""

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        return None  # set in the session of each rank

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        properties = arguments_of(message)
        await ranks.settings.set_other(message["command"], properties, replaces=",".join(sorted(properties)))
        return None

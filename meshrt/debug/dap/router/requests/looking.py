"""Requests about a thread that is stopped: its stack frames, variables and sources, and what is evaluated there."""

from __future__ import annotations

from meshrt.debug.dap.router.rank_threads import RankThreads
from meshrt.debug.dap.router.requests.table import MeshSession, RankSession, Request
from meshrt.debug.dap.router.view import Answer
from meshrt.debug.dap.wire import Message
from meshrt.errors import UsageError
from meshrt.hooks.operations import Data

#: The classes are found by their commands.
__all__: list[str] = []


# -- about a thread


class _OfThread(Request, frozen=True):
    thread_id: int | None = None

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        """Ask the first rank of the thread."""
        return await ranks.ask_at(self.thread_id, message)


class StackTrace(_OfThread, frozen=True, tag="stackTrace"):
    """The stack frames of a thread."""

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        return {"stackFrames": [], "totalFrames": 0}


class ExceptionInfo(_OfThread, frozen=True, tag="exceptionInfo"):
    """The exception for which a thread has stopped."""


class Goto(_OfThread, frozen=True, tag="goto"):
    """Set the next line of a thread."""


# -- about a source


class _SourceId(Data, frozen=True, rename="camel"):
    source_reference: int | None = None


class Source(Request, frozen=True, tag="source"):
    """The text of a source that is no file."""

    source: _SourceId | None = None
    source_reference: int | None = None

    @property
    def number(self) -> int:
        """The number of the source; 0: none."""
        return (self.source and self.source.source_reference) or self.source_reference or 0

    def at_rank(self, rank: RankSession, message: Message) -> Answer:
        return rank.show_source(message, self.number)

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        text = await ranks.sources.text(self.number)
        return {"content": text} if text is not None else await ranks.ask_of_source(self.number, message)


class GotoTargets(Request, frozen=True, tag="gotoTargets"):
    """Where a thread may go on in a source."""

    thread_id: int | None = None
    source: _SourceId | None = None

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        if self.thread_id is not None:
            return await ranks.ask_at(self.thread_id, message)
        return await ranks.ask_of_source((self.source and self.source.source_reference) or 0, message)


# -- about a stack frame


class _OfFrame(Request, frozen=True):
    frame_id: int | None = None

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        """Ask the rank whose stack frame it is."""
        return await ranks.ask_about("frameId", self.frame_id, message)


class Scopes(_OfFrame, frozen=True, tag="scopes"):
    """The groups of variables of a stack frame."""


class Completions(_OfFrame, frozen=True, tag="completions"):
    """What may complete a text."""


class StepInTargets(_OfFrame, frozen=True, tag="stepInTargets"):
    """The calls that can be stepped into."""


class SetExpression(_OfFrame, frozen=True, tag="setExpression"):
    """Set what an expression denotes."""


class Evaluate(_OfFrame, frozen=True, tag="evaluate"):
    """Evaluate an expression, or run a line of the debug console (context ``repl``)."""

    expression: str | None = None
    context: str | None = None

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        line = self.expression or ""
        if not line.strip() or self.context in ("hover", "watch"):
            raise UsageError("this is the session of the mesh; choose the session of a rank, or use the debug console")
        return {"result": await mesh.run_line(line), "variablesReference": 0}

    def at_rank(self, rank: RankSession, message: Message) -> Answer:
        return rank.evaluate(message, self.expression or "") if self.context == "repl" else rank.pass_on(message)

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        if self.context != "repl":
            return await ranks.ask_about("frameId", self.frame_id, message)
        return await ranks.evaluate(self.expression or "", self.frame_id, message)


# -- about variables


class _OfVariable(Request, frozen=True):
    variables_reference: int | None = None

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        """Ask the rank whose variables they are."""
        return await ranks.ask_about("variablesReference", self.variables_reference, message)


class Variables(_OfVariable, frozen=True, tag="variables"):
    """The variables of a scope, or the parts of a value."""


class SetVariable(_OfVariable, frozen=True, tag="setVariable"):
    """Set a variable."""


# -- about the program


class Modules(Request, frozen=True, tag="modules"):
    """The modules that are loaded: a list for each rank would be too long."""

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        return {"modules": [], "totalModules": 0}

"""bdb as the debugger uses it: stepping on one thread, and breakpoints that belong to one session.

Only this module and `meshrt.debug.rank.pdb_adapter` subclass bdb or pdb, and use names that Python's documentation does
not have. Those names are in a table, `NAMES`. Each has a test in ``tests/unit/debug/test_pdb_names.py``, so that a new
version of Python shows what has moved.

bdb treats every wait of a coroutine as a return. Here only true returns are returns.
"""

from __future__ import annotations

import bdb
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from meshrt.debug.rank.breakpoints import MeshBreaks
from meshrt.debug.rank.users_trace import TraceFunction
from meshrt.debug.stepping import is_awaitable, is_plumbing, is_suspension

if TYPE_CHECKING:
    from _typeshed import ExcInfo

__all__ = ["NAMES", "BdbAdapter", "Name", "Stack", "Stepping"]

#: Stack frames with their lines, outermost first.
Stack = list[tuple[FrameType, int]]


class Name(NamedTuple):
    """A name of the standard library that begins with an underscore, or is not documented, and what it is used for."""

    owner: type
    name: str
    use: str
    #: The first supported version of Python that has it, and the first one without it (None: all later ones have it).
    since: tuple[int, int] = (3, 11)
    until: tuple[int, int] | None = None


NAMES = (
    Name(bdb.Bdb, "_load_breaks", "a session does not take over the breakpoints of others"),
    Name(bdb.Bdb, "_prune_breaks", "a line is watched as long as this session has a breakpoint on it"),
    Name(bdb.Bdb, "_set_stopinfo", "`return` in a coroutine: neither its waits nor what runs meanwhile stop"),
    Name(bdb.Bdb, "botframe", "the outermost frame of the user's; stepping out of it ends the tracing"),
    Name(bdb.Bdb, "breaks", "whether the thread has to be traced after `continue`"),
    Name(bdb.Bdb, "currentbp", "whether a line stops because of a breakpoint"),
    Name(bdb.Bdb, "returnframe", "whether the last command was `continue`; the coroutine that `return` leaves"),
    Name(bdb.Bdb, "stopframe", "where the last command stops: None is everywhere"),
    Name(bdb.Bdb, "stoplineno", "whether the last command was `continue`: -1 is nowhere"),
    Name(bdb.Breakpoint, "clearBreakpoints", "numbers start at 1 again, so that equal ranks give equal answers"),
)


class Stepping(Protocol):
    """Decides what is traced and shown. On the traced thread."""

    def trace(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        """Handle an event of the thread. Return the local trace function of ``frame``."""

    def failed(self, text: str) -> None:
        """Show an error."""

    def stops(self, frame: FrameType, event: str) -> None:
        """Note that the thread is about to stop for a "call", "line", "breakpoint", "return" or "exception"."""

    def left(self) -> None:
        """Note that the outermost traced frame has ended."""

    def stack(self, stack: Stack, index: int) -> tuple[Stack, int]:
        """Return the part of ``stack`` that the user sees, and the index of the frame that is shown first."""


class BdbAdapter(bdb.Bdb):
    """bdb on one thread."""

    currentbp: int
    botframe: FrameType | None = None  # bdb has none before the first stop
    _jump_to: int | None = None

    if TYPE_CHECKING:  # typeshed leaves it out

        def _set_stopinfo(self, stopframe: FrameType | None, returnframe: FrameType | None, line: int = 0) -> None: ...

    def trace_by(self, stepping: Stepping, mesh_breaks: MeshBreaks) -> None:
        """Set the objects that decide what stops. Call it before the first stop.

        Args:
            mesh_breaks: Breakpoints that bdb does not know.
        """
        self.stepping = stepping
        self._mesh_breaks = mesh_breaks
        #: A breakpoint of the mesh is on the line that is handled now.
        self.on_mesh_break = False
        #: Handles an event as bdb does.
        self.dispatch: TraceFunction = super().trace_dispatch
        # An attribute, not a method: a method would add one more function call to each traced line.
        self.trace_dispatch = stepping.trace  # type: ignore[assignment, method-assign]  # None ends it, as in bdb

    # -- what the last command was -------------------------------------------------------------------------------------

    def begin(self, bottom: FrameType | None) -> None:
        """Forget the previous stop. ``bottom`` is the outermost frame that is traced."""
        self.reset()
        self.botframe = bottom

    @property
    def bottom(self) -> FrameType | None:
        """The outermost frame of the user's; None: there was no stop yet, or it was stepped out of."""
        return self.botframe

    @property
    def goes_on(self) -> bool:
        """Whether the last command was ``continue``: the next stop, if any, is a breakpoint."""
        return self.stoplineno == -1 and self.stopframe is self.botframe and self.returnframe is None

    @property
    def runs_free(self) -> bool:
        """Whether nothing stops by itself: the last command was ``continue``, and this session has no breakpoints."""
        return self.goes_on and not self.breaks

    @property
    def stops_everywhere(self) -> bool:
        """Whether the next event stops, in any frame."""
        return self.stopframe is None

    def jump(self, frame: FrameType, line: int) -> None:
        """Resume in ``frame``, whose line has already begun; jump to ``line`` when its next line is about to begin."""
        self._jump_to = line
        self.set_next(frame)

    # -- tracing -------------------------------------------------------------------------------------------------------

    def dispatch_line(self, frame: FrameType) -> TraceFunction:
        """Carry out a pending jump, then handle the line as bdb does."""
        if self._jump_to is not None and frame is self.stopframe:
            line, self._jump_to = self._jump_to, None
            try:
                frame.f_lineno = line  # type: ignore[misc]  # writable in a trace function
            except ValueError as error:
                self.stepping.failed(f"Jump failed: {error}")
        self.on_mesh_break = self._mesh_breaks.traced(frame)
        return super().dispatch_line(frame)

    def break_here(self, frame: FrameType) -> bool:
        """Whether a breakpoint of bdb or of the mesh is on the line of ``frame``."""
        return bool(super().break_here(frame)) or self.on_mesh_break

    def break_anywhere(self, frame: FrameType) -> bool:
        """Whether bdb or the mesh may have a breakpoint in the code of ``frame``."""
        return bool(super().break_anywhere(frame)) or self._mesh_breaks.watched(frame)

    def dispatch_return(self, frame: FrameType, arg: object) -> TraceFunction:
        """Handle a return as bdb does; a wait of a coroutine is not a return."""
        if is_suspension(frame, arg):
            if self.stopframe is None:
                self.set_next(frame)
            return self.trace_dispatch
        self._jump_to = None
        if is_awaitable(frame):
            self._coroutine_returns(frame, arg)
        else:
            super().dispatch_return(frame, arg)
        if frame is self.botframe:
            self.botframe = None
            self.stepping.left()
            return None  # type: ignore[return-value]  # as above
        return self.trace_dispatch

    def _coroutine_returns(self, frame: FrameType, arg: object) -> None:
        if not self.stop_here(frame) and frame is not self.returnframe:
            return
        self.user_return(frame, arg)
        if self.quitting:
            raise bdb.BdbQuit
        if self.stopframe is frame and self.stoplineno != -1:
            self.set_step()
        caller = frame.f_back
        if self.stoplineno != -1 and caller is not None and not caller.f_trace and not is_plumbing(caller):
            caller.f_trace = self.trace_dispatch

    def dispatch_exception(self, frame: FrameType, arg: ExcInfo) -> TraceFunction:
        """Handle an exception as bdb does, except the StopIteration of other coroutines."""
        # bdb shows the StopIteration that ends a stepped generator, in the frame that called it. For coroutines, whose
        # end `dispatch_return` sees, that may be any other coroutine of the event loop.
        stepped, kind = self.stopframe, arg[0]
        if stepped is not None and frame is not stepped and is_awaitable(stepped) and issubclass(kind, StopIteration):
            return self.trace_dispatch
        return super().dispatch_exception(frame, arg)

    def set_return(self, frame: FrameType) -> None:
        """Stop when ``frame`` returns; in a coroutine, not at its waits."""
        if is_awaitable(frame):
            self._set_stopinfo(self.botframe, frame, -1)
        else:
            super().set_return(frame)

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        self.stepping.stops(frame, "call")
        super().user_call(frame, argument_list)

    def user_exception(self, frame: FrameType, exc_info: ExcInfo) -> None:
        self.stepping.stops(frame, "exception")
        super().user_exception(frame, exc_info)

    def user_return(self, frame: FrameType, return_value: object) -> None:
        self.stepping.stops(frame, "return")
        super().user_return(frame, return_value)

    def user_line(self, frame: FrameType) -> None:
        self.stepping.stops(frame, "breakpoint" if getattr(self, "currentbp", 0) else "line")
        super().user_line(frame)
        self.currentbp = 0

    def get_stack(self, f: FrameType | None, t: TracebackType | None) -> tuple[Stack, int]:
        """Return the part of the stack that the user sees."""
        return self.stepping.stack(*super().get_stack(f, t))

    # -- breakpoints ---------------------------------------------------------------------------------------------------

    def _load_breaks(self) -> None:  # called when this is made
        self._own: list[bdb.Breakpoint] = []

    def canonic(self, filename: str) -> str:
        """Return the full name of a file; names in angle brackets are kept."""
        # Typed code may have the name "<stdin>-3", which is not a file of the current directory.
        return filename if filename.startswith("<") else super().canonic(filename)

    def set_break(
        self, filename: str, lineno: int, temporary: bool = False, cond: str | None = None, funcname: str | None = None
    ) -> str | None:
        problem = super().set_break(filename, lineno, temporary, cond, funcname)
        if problem is None:
            self._own.append(bdb.Breakpoint.bplist[self.canonic(filename), lineno][-1])
        return problem

    def _own_breaks(self) -> list[bdb.Breakpoint]:
        """Return the breakpoints of this session that still exist; others on the same lines are of other sessions."""
        self._own = [bp for bp in self._own if bp in bdb.Breakpoint.bpbynumber]
        return list(self._own)

    def _prune_breaks(self, filename: str, lineno: int) -> None:
        if all((bp.file, bp.line) != (filename, lineno) for bp in self._own_breaks()):
            self.breaks[filename].remove(lineno)
            if not self.breaks[filename]:
                del self.breaks[filename]

    def delete_breaks(self) -> list[str]:
        """Delete the breakpoints of this session. Return their descriptions."""
        mine = self._own_breaks()
        for bp in mine:
            self.clear_bpbynumber(bp.number)
        return [str(bp) for bp in mine]

    def forget_breaks(self) -> None:
        """Delete all breakpoints of this session at its end."""
        for bp in self._own_breaks():
            bp.deleteMe()
        self.breaks.clear()
        if not any(bdb.Breakpoint.bpbynumber):
            bdb.Breakpoint.clearBreakpoints()

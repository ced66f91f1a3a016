"""pdb for one thread of a rank: its streams are a `Console`, its stack ends at the endpoint, it leaves no trace behind.

Where it differs from `pdb.Pdb`:

* ``breakpoint()`` stops on its own line on every Python version: the prompt is opened inside the call, not by waiting
  for the next trace event. So it also works as the last statement, and nothing is traced until a command asks for it.
* The runtime's stack frames are not shown and not stepped into; stepping out of the endpoint resumes the rank.
* A wait inside a coroutine is stepped over: ``n`` and ``s`` come back when the same coroutine goes on.
* A rank that is interrupted while a coroutine waits shows what awaits what as its stack.
* Commands: see `meshrt.debug.rank.prompt_pdb`.
"""

from __future__ import annotations

import bdb
import contextlib
import pdb
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from meshrt.actor.headroom import SHORTAGES, headroom
from meshrt.debug.protocol import ABORTED, CLOSED, Place
from meshrt.debug.rank.breakpoints import MeshBreaks
from meshrt.debug.rank.console import Released, routed
from meshrt.debug.rank.postmortem import exception_text
from meshrt.debug.rank.prompt_pdb import PromptOwner, PromptPdb
from meshrt.debug.rank.users_trace import UsersTrace, above
from meshrt.debug.stepping import bottom_frame, is_awaitable, is_hidden, is_plumbing, is_suspension, visible
from meshrt.inspect.visibility import own_index

__all__ = ["Owner", "RankPdb", "Stack"]

Stack = list[tuple[FrameType, int]]


class Owner(PromptOwner, Protocol):
    """What a debugger needs of its session."""

    @property
    def users_trace(self) -> UsersTrace: ...

    def whose_turn(self, debugger: RankPdb, /) -> RankPdb | None: ...

    @property
    def mesh_breaks(self) -> MeshBreaks: ...

    def say_turn(self) -> None: ...

    def at_prompt(self, debugger: RankPdb, reason: str, /) -> AbstractContextManager[None]: ...

    def left_tracing(self) -> None: ...

    def mark(self, frame: FrameType, /) -> None: ...

    def printed(self) -> None: ...

    def line_begins(self) -> None: ...

    def line_ends(self) -> None: ...

    def push(self, debugger: RankPdb, /) -> None: ...

    def pop(self, debugger: RankPdb, /) -> None: ...


class RankPdb(PromptPdb):
    """One debugger; ``parent`` is the one whose ``debug`` command made it."""

    if TYPE_CHECKING:  # parts of bdb and pdb that typeshed leaves out
        returnframe: FrameType | None
        stoplineno: int

        def _set_stopinfo(self, stopframe: FrameType | None, returnframe: FrameType | None, line: int = 0) -> None: ...

    def __init__(self, session: Owner, parent: RankPdb | None = None) -> None:
        super().__init__(session, readrc=parent is None)
        self.session = session
        self.parent = parent
        #: The outermost frame of the user's, below which it steps; None: it has not stopped yet, or stepped out of it.
        self.botframe = None
        #: A line is being read or obeyed. False while the debugged code runs.
        self.at_prompt = False
        self.post_mortem = False
        self._next_reason = ""
        #: Index in the stack of the frame that the rank is said to stand in.
        self._stands_at = -1
        self._quit_because = ABORTED
        self._jump_to: int | None = None
        self._in_trace = False
        #: The await chain at whose end a coroutine waits, while the prompt stands there.
        self._suspended: Stack | None = None
        #: A breakpoint of the mesh is on the line that is being looked at.
        self._mesh_break = False
        #: Why the next event stops, if not because of a command.
        self._soon = ""

    # -- stops ---------------------------------------------------------------------------------------------------------

    def stop_at(self, frame: FrameType, reason: str, *, traced: bool = False) -> None:
        """Open the prompt at ``frame``, which is on the calling thread's stack; returns when the person resumes.

        Args:
            traced: The line of ``frame`` is about to begin, and this is called by whoever watches for that.
        """
        self.session.users_trace.put_aside(above(frame))
        self.reset()
        self.botframe = bottom_frame(frame)
        self._next_reason = reason
        self._soon = ""
        self._in_trace = traced
        try:
            self.interaction(frame, None)
        except SHORTAGES:
            self.untrace(frame)
            raise
        finally:
            self._in_trace = False
        if self.quitting:
            raise bdb.BdbQuit(self._quit_because)
        if self.goes_on() and not self.breaks:
            self.untrace(frame)
        else:
            self._trace_from(frame)

    def stop_suspended(self, stack: Stack, abort: Callable[[str], None]) -> None:
        """Open the prompt where a coroutine of the calling thread's event loop waits; not on that coroutine's stack.

        Args:
            stack: The chain of what awaits each other, outermost first; the frames of the user's.
            abort: Called with the reason to end the endpoint, which cannot be done by raising here.
        """
        self.session.users_trace.put_aside(frame for frame, _ in stack)
        self.reset()
        self.botframe, innermost = stack[0][0], stack[-1][0]
        self._next_reason = "interrupt"
        self._suspended = stack
        try:
            self.interaction(innermost, None)
        finally:
            self._suspended = None
        if self.quitting:
            self.quitting = False
            abort(self._quit_because)
        elif self.goes_on() and not self.breaks:
            for frame, _ in stack:
                del frame.f_trace
            self.session.mesh_breaks.follow(None)
        else:
            if self.stopframe is None:
                self.set_next(innermost)  # what the loop does meanwhile is not this coroutine's
            for frame, _ in stack:
                frame.f_trace = self.trace_dispatch
            sys.settrace(self.trace_dispatch)

    def stop_soon(self, frame: FrameType, reason: str) -> None:
        """Stop when the user's code goes on in ``frame``, or elsewhere on this thread, which is traced anyway."""
        self._soon = reason
        self._set_stopinfo(None, None)
        self._trace_from(frame)

    def stop_after(self, exception: BaseException) -> None:
        """Open the prompt where ``exception`` was raised, before it goes on its way."""
        self.session.users_trace.put_aside(())
        self.reset()
        self.post_mortem = True
        self._next_reason = "post-mortem"
        self.session.console.write(exception_text(exception))
        try:
            # From 3.13 on, pdb takes the exception and can show the chain of its causes.
            self.interaction(None, exception if sys.version_info >= (3, 13) else exception.__traceback__)
        finally:
            self.session.mesh_breaks.follow(None)

    def goes_on(self) -> bool:
        """Whether the last command was ``continue``: the next stop, if any, is a breakpoint."""
        return self.stoplineno == -1 and self.stopframe is self.botframe and self.returnframe is None

    @property
    def wants_trace(self) -> bool:
        """Whether the debugged code runs, and is to stop again by itself. Any thread."""
        running = self.botframe is not None and not self.at_prompt and not self.post_mortem
        return running and (bool(self.breaks) or not self.goes_on())

    def untrace(self, frame: FrameType | None) -> Any:
        """Let the calling thread run at full speed, as far as this session is concerned.

        Returns the local trace function that ``frame`` has from now on, which is the innermost one of the user's.
        """
        sys.settrace(None)
        walker = frame
        while walker is not None:
            if walker.f_trace is not None:
                del walker.f_trace
            if walker is self.botframe:
                break
            walker = walker.f_back
        return self.session.mesh_breaks.follow(frame)

    def _trace_from(self, frame: FrameType) -> None:
        walker: FrameType | None = frame
        while walker is not None:
            if not is_plumbing(walker):
                walker.f_trace = self.trace_dispatch
                walker.f_trace_lines = True
            if walker is self.botframe:
                break
            walker = walker.f_back
        sys.settrace(self.trace_dispatch)

    def place(self) -> Place:
        """Return where the thread stands, whatever frame the person looks at."""
        if not self.stack:
            return Place()
        frame, line = self.stack[self._stands_at]
        return Place(frame.f_code.co_filename, line or 0, frame.f_code.co_name)

    # -- tracing -------------------------------------------------------------------------------------------------------

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            # On a thread whose calls take turns, this may be another one's.
            debugger = self.session.whose_turn(self)
            if debugger is None:
                return self.session.mesh_breaks.local(frame)
            if debugger is not self:
                return debugger.trace_dispatch(frame, event, arg)
        if is_hidden(frame) or (is_plumbing(frame) and not self.break_anywhere(frame)):
            caller = frame.f_back
            stepping = event == "call" and self.stopframe is None and not self.quitting
            if stepping and caller is not None and not is_plumbing(caller):
                self._set_stopinfo(caller, None)  # `step` into the runtime is a `next` over it
            return None
        self._in_trace = True
        try:
            try:
                local = super().trace_dispatch(frame, event, arg)
            except RecursionError:
                with headroom:  # the program has come close to its limit
                    local = super().trace_dispatch(frame, event, arg)
            if self.breaks or not self.goes_on():
                return local
            return self.untrace(frame)
        except bdb.BdbQuit:
            raise bdb.BdbQuit(self._quit_because) from None
        finally:
            self._in_trace = False

    def dispatch_line(self, frame: FrameType) -> Any:
        if self._jump_to is not None and frame is self.stopframe:
            line, self._jump_to = self._jump_to, None
            try:
                frame.f_lineno = line  # type: ignore[misc]  # writable in a trace function
            except ValueError as error:
                self.error(f"Jump failed: {error}")
        self._mesh_break = self.session.mesh_breaks.traced(frame)
        return super().dispatch_line(frame)

    def break_here(self, frame: FrameType) -> bool:
        return bool(super().break_here(frame)) or self._mesh_break

    def break_anywhere(self, frame: FrameType) -> bool:
        return bool(super().break_anywhere(frame)) or self.session.mesh_breaks.watched(frame)

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        if is_suspension(frame, arg):
            if self.stopframe is None:
                self._set_stopinfo(frame, None)
            return self.trace_dispatch
        self._jump_to = None
        if is_awaitable(frame):
            # bdb takes every return event of a coroutine for a wait; here only true returns are left.
            if self.stop_here(frame) or frame is self.returnframe:
                self.user_return(frame, arg)
                if self.quitting:
                    raise bdb.BdbQuit
                if self.stopframe is frame and self.stoplineno != -1:
                    self._set_stopinfo(None, None)
                caller = frame.f_back
                if self.stoplineno != -1 and caller is not None and not caller.f_trace and not is_plumbing(caller):
                    caller.f_trace = self.trace_dispatch
        else:
            super().dispatch_return(frame, arg)
        if frame is self.botframe:
            sys.settrace(None)  # stepped out of the endpoint
            self.botframe = None
            self.session.mesh_breaks.follow(None)
            self.session.left_tracing()
            return None
        return self.trace_dispatch

    def dispatch_exception(self, frame: FrameType, arg: Any) -> Any:
        # bdb shows the StopIteration with which a generator that is stepped ends, in whoever asked it. Of coroutines,
        # which `dispatch_return` sees end, that is any other one on the event loop.
        stepped = self.stopframe
        if stepped is not None and frame is not stepped and is_awaitable(stepped) and issubclass(arg[0], StopIteration):
            return self.trace_dispatch
        return super().dispatch_exception(frame, arg)

    def set_return(self, frame: FrameType) -> None:
        if is_awaitable(frame):
            self._set_stopinfo(self.botframe, frame, -1)
        else:
            super().set_return(frame)

    def user_call(self, frame: FrameType, argument_list: Any) -> None:
        self._next_reason = self._why("step")
        super().user_call(frame, argument_list)

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        self._next_reason = "exception"
        super().user_exception(frame, exc_info)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        self._next_reason = "return"
        super().user_return(frame, return_value)

    def user_line(self, frame: FrameType) -> None:
        stepped = not getattr(self, "currentbp", 0) and (self.stop_here(frame) or not self._mesh_break)
        self._next_reason = self._why("step" if stepped else "breakpoint")
        self.session.mark(frame)
        super().user_line(frame)
        self.currentbp = 0

    def _why(self, otherwise: str) -> str:
        reason, self._soon = self._soon or otherwise, ""
        return reason

    def get_stack(self, f: FrameType | None, t: TracebackType | None) -> tuple[Stack, int]:
        if self._suspended is not None:
            stack, index = list(self._suspended), len(self._suspended) - 1
        else:
            stack, index = super().get_stack(f, t)
            current = stack[index] if stack else None
            stack = visible(stack)
            index = stack.index(current) if current in stack else max(0, len(stack) - 1)
        if self._next_reason == "interrupt":
            # Somebody else's code may wait below: the user's own is what is looked for (`d` goes down).
            index = own_index([frame.f_code.co_filename for frame, _ in stack])
        self._stands_at = index
        return stack, index

    # -- the prompt ----------------------------------------------------------------------------------------------------

    def interaction(self, frame: FrameType | None, tb_or_exc: Any) -> None:
        with headroom, routed(self.session.console):
            self.session.say_turn()
            super().interaction(frame, tb_or_exc)

    def bp_commands(self, frame: FrameType) -> Any:
        with routed(self.session.console):
            wants_prompt = super().bp_commands(frame)
        if not wants_prompt:
            self.session.printed()
        return wants_prompt

    def onecmd(self, line: str) -> Any:
        # A KeyboardInterrupt that a person has asked for ends this line, and nothing else; so does whatever fails.
        result = None
        try:
            self.session.line_begins()
            result = super().onecmd(line)
            self.session.line_ends()
        except KeyboardInterrupt:
            self.session.line_ends()
            if not result:
                self.error("KeyboardInterrupt")
        except Exception:
            self.session.line_ends()
            self._error_exc()
        except BaseException:
            self.session.line_ends()
            raise
        return result

    def _cmdloop(self) -> None:
        with self.session.at_prompt(self, self._next_reason):
            try:
                super()._cmdloop()
            except Released as released:
                if self.parent is not None:
                    raise
                self._let_go(closing=released.closing)
        over = self.quitting or self.post_mortem or (self.goes_on() and not self.breaks)
        if over and self.parent is None:
            self.session.left_tracing()

    def _let_go(self, *, closing: bool) -> None:
        self.session.console.rearm()
        self.cmdqueue.clear()
        self.commands_defining = False
        self.prompt = "(Pdb) "
        if closing:
            self.session.console.release(closing=True)  # for every stop that may follow
            self._quit_because = CLOSED
            if not self.post_mortem:
                self.set_quit()
        else:
            self.set_continue()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Mark that lines are read and obeyed here."""
        before, self.at_prompt = self.at_prompt, True
        try:
            yield
        finally:
            self.at_prompt = before

    # -- commands ------------------------------------------------------------------------------------------------------

    def do_jump(self, arg: str) -> Any:
        if self.post_mortem:
            return self._nothing_left()
        innermost = self.curindex + 1 == len(self.stack) and arg.isdigit()
        if self.curframe is None or self._in_trace or not innermost:
            return super().do_jump(arg)
        # At a breakpoint() the line has already begun: jump when the next one is about to.
        self._jump_to = int(arg)
        self.set_next(self.curframe)
        return 1

    do_j = do_jump

    def _nothing_left(self) -> None:
        self.error("nothing is left to step here: the endpoint has raised; `c` delivers the exception")

    def do_next(self, arg: str) -> Any:
        return self._nothing_left() if self.post_mortem else super().do_next(arg)

    do_n = do_next

    def do_step(self, arg: str) -> Any:
        return self._nothing_left() if self.post_mortem else super().do_step(arg)

    do_s = do_step

    def do_return(self, arg: str) -> Any:
        return self._nothing_left() if self.post_mortem else super().do_return(arg)

    do_r = do_return

    def do_until(self, arg: str) -> Any:
        return self._nothing_left() if self.post_mortem else super().do_until(arg)

    do_unt = do_until

    def do_quit(self, arg: str) -> Any:
        if self.post_mortem:
            return self.do_continue(arg)
        return super().do_quit(arg)

    do_q = do_quit
    do_exit = do_quit

    def do_debug(self, arg: str) -> None:
        if self.curframe is None:
            return
        inner = RankPdb(self.session, parent=self)
        inner.prompt = f"({self.prompt.strip()}) "
        self.message("ENTERING RECURSIVE DEBUGGER")
        sys.settrace(None)
        self.session.push(inner)
        try:
            sys.call_tracing(inner.run, (arg, self.curframe.f_globals, self.curframe_locals))
        except Exception:
            self._error_exc()
        finally:
            self.session.pop(inner)
            sys.settrace(self.trace_dispatch if self._in_trace else None)
        self.message("LEAVING RECURSIVE DEBUGGER")
        self.lastcmd = inner.lastcmd


def _keep_help() -> None:
    """``help`` of a command is its docstring: those that are done anew here keep pdb's."""
    for cls in (PromptPdb, RankPdb):
        for name, member in vars(cls).items():
            if name.startswith("do_") and not member.__doc__:
                member.__doc__ = getattr(pdb.Pdb, name).__doc__


_keep_help()

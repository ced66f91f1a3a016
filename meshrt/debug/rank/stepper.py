"""Where the thread of a session is stopped, and when it stops again.

* ``breakpoint()`` stops on its own line on every Python version: the prompt is opened inside the call, not by waiting
  for the next trace event. So it also works as the last statement, and nothing is traced until a command requires it.
* The runtime's stack frames are not shown and not stepped into; stepping out of the endpoint resumes the rank.
* A wait inside a coroutine is stepped over: ``n`` and ``s`` stop again when the same coroutine goes on.
* If a rank is interrupted while a coroutine waits, its stack is the chain of awaits.
"""

from __future__ import annotations

import bdb
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Literal

from meshrt.actor.headroom import SHORTAGES, headroom
from meshrt.debug.protocol import ABORTED, CLOSED
from meshrt.debug.rank.bdb_adapter import Stack
from meshrt.debug.rank.pdb_adapter import PdbAdapter
from meshrt.debug.rank.postmortem import exception_text
from meshrt.debug.rank.shared import Shared
from meshrt.debug.rank.users_trace import TraceFunction, above
from meshrt.debug.stepping import bottom_frame, is_hidden, is_plumbing, visible
from meshrt.inspect.visibility import own_index
from meshrt.program.places import Place

__all__ = ["Stepper"]


class Stepper:
    """Traces one thread, for one prompt. On that thread."""

    def __init__(self, pdb: PdbAdapter, shared: Shared) -> None:
        self._pdb = pdb
        self._shared = shared
        self._mesh_breaks = shared.mesh_breaks
        #: The endpoint has raised: the frames that are shown have ended.
        self.post_mortem = False
        #: The prompt is open in a trace function.
        self.traced = False
        #: The reason of the next stop, or of the last one.
        self.reason = ""
        #: The next event stops for an interrupt, and not for a command.
        self._soon = False
        #: The index in the stack of the frame that is reported as the place of the stop.
        self._stopped_in = -1
        self._quit_because = ABORTED
        #: The await chain at the end of which a coroutine waits, while the prompt is open there.
        self._suspended: Stack | None = None
        #: The line of the last stop, if that line is going to be reported once more.
        self._mark: tuple[int, int] | None = None

    # -- stops ---------------------------------------------------------------------------------------------------------

    def stop_at(self, frame: FrameType, reason: str, *, traced: bool = False) -> None:
        """Open the prompt at ``frame``, which is on the calling thread's stack; returns when the user resumes.

        Args:
            traced: The line of ``frame`` is about to begin, and a trace function calls this.
        """
        self._shared.users_trace().put_aside(above(frame))
        self._pdb.begin(bottom_frame(frame))
        self.reason = reason
        self._soon = False
        self.traced = traced
        try:
            self._pdb.open(frame)
        except SHORTAGES:
            self._untrace(frame)
            raise
        finally:
            self.traced = False
        if self._pdb.quitting:
            raise bdb.BdbQuit(self._quit_because)
        if self._pdb.runs_free:
            self._untrace(frame)
        else:
            self._trace_from(frame)

    def stop_suspended(self, stack: Stack, abort: Callable[[str], None]) -> None:
        """Open the prompt where a coroutine of the calling thread's event loop waits, outside that coroutine's stack.

        Args:
            stack: The chain of awaits, outermost first; the user's frames.
            abort: Called with the reason to end the endpoint; raising here would not end it.
        """
        self._shared.users_trace().put_aside(frame for frame, _ in stack)
        innermost = stack[-1][0]
        self._pdb.begin(stack[0][0])
        self.reason = "interrupt"
        self._suspended = stack
        try:
            self._pdb.open(innermost)
        finally:
            self._suspended = None
        if self._pdb.quitting:
            self._pdb.quitting = False
            abort(self._quit_because)
        elif self._pdb.runs_free:
            for frame, _ in stack:
                del frame.f_trace
            self._mesh_breaks.follow(None)
        else:
            if self._pdb.stops_everywhere:
                self._pdb.set_next(innermost)  # not the other work that the loop does meanwhile
            for frame, _ in stack:
                frame.f_trace = self._pdb.trace_dispatch
            sys.settrace(self._pdb.trace_dispatch)

    def stop_soon(self, frame: FrameType) -> None:
        """Stop for an interrupt as soon as user code goes on, in ``frame`` or elsewhere on this thread.

        The thread is traced already.
        """
        self._soon = True
        self._pdb.set_step()
        self._trace_from(frame)

    def stop_after(self, exception: BaseException) -> None:
        """Open the prompt where ``exception`` was raised, before the caller gets it."""
        self._shared.users_trace().put_aside(())
        self._pdb.begin(None)
        self.post_mortem = True
        self.reason = "post-mortem"
        self._pdb.message(exception_text(exception), end="")
        try:
            self._pdb.open_after(exception)
        finally:
            self._mesh_breaks.follow(None)

    def let_go(self, *, closing: bool) -> None:
        """Resume without a command of the user's; ``closing``: by an abort of the endpoint."""
        if not closing:
            self._pdb.set_continue()
            return
        self._quit_because = CLOSED
        if not self.post_mortem:
            self._pdb.set_quit()

    # -- what it is doing ----------------------------------------------------------------------------------------------

    @property
    def how(self) -> Literal["quit", "continue", "step"]:
        """How it was resumed."""
        if self._pdb.quitting:
            return "quit"
        return "continue" if self.post_mortem or self._pdb.goes_on else "step"

    @property
    def over(self) -> bool:
        """Whether it was resumed and will not stop again by itself."""
        return self._pdb.quitting or self.post_mortem or self._pdb.runs_free

    @property
    def wants_trace(self) -> bool:
        """Whether the thread will stop again by itself as soon as it runs. Any thread."""
        return self._pdb.bottom is not None and not self.post_mortem and not self._pdb.runs_free

    def place(self) -> Place:
        """Return where the thread is stopped, regardless of the frame that the user looks at. Any thread."""
        return self._place(self._stopped_in)

    def frames(self) -> Sequence[FrameType]:
        """Return the stack frames of the stopped thread, the innermost last. On that thread."""
        return [frame for frame, _ in self._pdb.frames]

    def selected(self) -> Place:
        """Return the frame that the user looks at, or no place if the thread is stopped in that one. Any thread."""
        index = self._pdb.index if self._pdb.frames else self._stopped_in
        return Place() if index == self._stopped_in else self._place(index)

    def _place(self, index: int) -> Place:
        stack = self._pdb.frames
        if not stack:
            return Place()
        frame, line = stack[index]
        return Place(frame.f_code.co_filename, line or 0, frame.f_code.co_name)

    def take_mark(self, frame: FrameType) -> bool:
        """Whether it has just stopped at this very line of ``frame``. Resets the mark."""
        mark, self._mark = self._mark, None
        return mark == (id(frame), frame.f_lasti)

    # -- tracing -------------------------------------------------------------------------------------------------------

    def trace(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        """See `Stepping`."""
        if event == "call":
            # On a thread whose calls take turns, this may belong to another call.
            elsewhere = self._shared.events.elsewhere()
            if elsewhere is not None:
                theirs: TraceFunction | None = elsewhere(frame, event, arg)
                return theirs
        if is_hidden(frame) or (is_plumbing(frame) and not self._pdb.break_anywhere(frame)):
            caller = frame.f_back
            stepping = event == "call" and self._pdb.stops_everywhere and not self._pdb.quitting
            if stepping and caller is not None and not is_plumbing(caller):
                self._pdb.set_next(caller)  # `step` into the runtime is a `next` over it
            return None
        self.traced = True
        try:
            try:
                local = self._pdb.dispatch(frame, event, arg)
            except RecursionError:
                with headroom:  # the program is close to its recursion limit
                    local = self._pdb.dispatch(frame, event, arg)
            return self._untrace(frame) if self._pdb.runs_free else local
        except bdb.BdbQuit:
            raise bdb.BdbQuit(self._quit_because) from None
        finally:
            self.traced = False

    def stops(self, frame: FrameType, event: str) -> None:
        """See `Stepping`."""
        if event == "line" and self._pdb.on_mesh_break and not self._pdb.stop_here(frame):
            event = "breakpoint"
        if event in ("call", "line", "breakpoint"):
            self.reason = "interrupt" if self._soon else "breakpoint" if event == "breakpoint" else "step"
            self._soon = False
        else:
            self.reason = event
        if event in ("line", "breakpoint"):
            self._mark = (id(frame), frame.f_lasti) if self._mesh_breaks.marks(frame) else None

    def left(self) -> None:
        """See `Stepping`."""
        sys.settrace(None)  # stepped out of the endpoint
        self._mesh_breaks.follow(None)
        self._shared.events.over()

    def failed(self, text: str) -> None:
        """See `Stepping`."""
        self._pdb.error(text)

    def stack(self, stack: Stack, index: int) -> tuple[Stack, int]:
        """See `Stepping`."""
        if self._suspended is not None:
            stack, index = list(self._suspended), len(self._suspended) - 1
        else:
            current = stack[index] if stack else None
            stack = visible(stack)
            index = stack.index(current) if current in stack else max(0, len(stack) - 1)
        if self.reason == "interrupt":
            # The innermost frames may be library code: show the user's own first (`d` goes down).
            index = own_index([frame.f_code.co_filename for frame, _ in stack])
        self._stopped_in = index
        return stack, index

    def _untrace(self, frame: FrameType | None) -> TraceFunction | None:
        """Stop tracing the calling thread for this session, so that it runs at full speed.

        Returns the local trace function that ``frame``, the innermost user frame, has from now on.
        """
        sys.settrace(None)
        for walker in above(frame):
            if walker.f_trace is not None:
                del walker.f_trace
            if walker is self._pdb.bottom:
                break
        return self._mesh_breaks.follow(frame)

    def _trace_from(self, frame: FrameType) -> None:
        for walker in above(frame):
            if not is_plumbing(walker):
                walker.f_trace = self._pdb.trace_dispatch
                walker.f_trace_lines = True
            if walker is self._pdb.bottom:
                break
        sys.settrace(self._pdb.trace_dispatch)

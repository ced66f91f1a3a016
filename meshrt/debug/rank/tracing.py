"""Following threads with ``sys.settrace``: until an armed interrupt stops, and before 3.12 to find breakpoints.

The trace function removes itself from a thread at the first event for which there is nothing to look for any more. A
debugger that steps has its own trace function; it looks for breakpoints itself and returns the thread with `follow`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from threading import get_ident
from types import FrameType

from meshrt.debug.rank.breakpoints import BreakTable
from meshrt.debug.rank.users_trace import TraceFunction, above
from meshrt.debug.stepping import is_users

__all__ = ["Tracer"]


class Tracer:
    """The trace function of all threads that are followed.

    Args:
        table: The breakpoints; used only if ``breaks``.
        reached: Called with the stack frame whose line has a breakpoint.
        interrupted: Called with the first stack frame of user code where an armed thread goes on.
    """

    def __init__(
        self,
        table: BreakTable,
        reached: Callable[[FrameType], object],
        interrupted: Callable[[FrameType], None],
        *,
        breaks: bool,
    ) -> None:
        self._table = table
        self._reached = reached
        self._interrupted = interrupted
        self._breaks = breaks
        self._armed: set[int] = set()
        self._on_call = self._make_on_call()

    @property
    def wanted(self) -> bool:
        """Whether threads have to be followed because of breakpoints."""
        return self._breaks and self._table.active

    def arm(self, frame: FrameType | None) -> None:
        """Stop the calling thread where user code goes on, in ``frame`` or one above or below it."""
        self._armed.add(get_ident())
        for each in above(frame):
            if is_users(each):
                each.f_trace = self._on_line
        sys.settrace(self._on_call)

    def disarm(self, ident: int) -> None:
        """Cancel `arm` for a thread. Any thread."""
        self._armed.discard(ident)

    def follow(self, frame: FrameType | None) -> TraceFunction | None:
        """Look for breakpoints on the calling thread from now on, if there are any.

        Returns the local trace function for ``frame``; the frames above it get theirs. A thread that is traced by
        another tool is left alone.
        """
        if not self.wanted or sys.gettrace() not in (None, self._on_call):
            return None
        local = self._on_line if frame is not None and self._table.lines_in(frame.f_code) else None
        for each in above(frame):
            if self._table.lines_in(each.f_code):
                each.f_trace = self._on_line
        sys.settrace(self._on_call)
        return local

    def local(self, frame: FrameType) -> TraceFunction | None:
        """Return the local trace function for a frame that begins, or goes on, while another one traces its thread."""
        return self._on_line if self.wanted and self._table.lines_in(frame.f_code) else None

    def leave(self) -> None:
        """Stop following the calling thread, unless there are breakpoints: a task may have outlived its call."""
        self._armed.discard(get_ident())
        if not self.wanted and sys.gettrace() == self._on_call:
            sys.settrace(None)

    def follow_new_threads(self) -> None:
        """Follow threads that user code starts from now on, or stop doing so. Any thread. Other trace hooks stay."""
        if self.wanted and threading.gettrace() is None:
            threading.settrace(self._on_call)
        elif not self.wanted and threading.gettrace() == self._on_call:
            threading.settrace(None)

    # -- trace functions

    def _make_on_call(self) -> TraceFunction:
        # Runs with every call of the program, so everything it needs is in its own variables.
        armed, table, look = self._armed, self._table, self._look

        def on_call(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
            if not armed and table.files.get(frame.f_code.co_filename) is False:
                return None
            return look(frame)

        return on_call

    def _look(self, frame: FrameType) -> TraceFunction | None:
        if self._armed and get_ident() in self._armed:
            return self._on_line if is_users(frame) else None
        if not self.wanted:
            sys.settrace(None)
            # The signal of a table that came in between was handled already, before the trace was removed.
            return self.follow(frame)
        return self._on_line if self._table.lines_in(frame.f_code) else None

    def _on_line(self, frame: FrameType, event: str, arg: object) -> None:
        # Always returns None: so the local trace function stays as it is now; a stop may have changed it.
        if event == "line":
            if self._armed and get_ident() in self._armed:
                self._armed.discard(get_ident())
                self._let_go(frame)
                self._interrupted(frame)
                return
            if self._table.lines_in(frame.f_code):
                self._reached(frame)
                return
        if not self._armed and not (self.wanted and self._table.lines_in(frame.f_code)):
            self._let_go(frame)

    def _let_go(self, frame: FrameType) -> None:
        if not self.wanted and sys.gettrace() == self._on_call:
            sys.settrace(None)
        for each in above(frame):
            if each.f_trace == self._on_line and not (self.wanted and self._table.lines_in(each.f_code)):
                del each.f_trace
        self.follow(frame)  # as above

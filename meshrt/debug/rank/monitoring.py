"""Watching running code with ``sys.monitoring`` (Python 3.12 and newer).

Only code objects with breakpoints are instrumented, and each of their other lines is switched off when it is first
reached. So code without breakpoints runs at full speed. The tool is released when there are no breakpoints.

It also stops the thread of a further actor: each code object on its stack reports its next line or jump.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Container
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from meshrt.debug.rank.breakpoints import BreakTable
from meshrt.debug.rank.users_trace import above
from meshrt.debug.stepping import is_users
from meshrt.errors import MeshError

__all__ = ["Monitor", "loops_in_a_line"]

#: Tool numbers, in order of preference. The number for debuggers is left to the engine of an IDE, which needs it.
_TOOLS = (4, 3, 5, 2, 1, 0)


def loops_in_a_line(code: CodeType, lines: Container[int]) -> frozenset[int]:
    """Return the offsets of the backward jumps that stay within one of ``lines``: ``while going: pass``."""
    instructions = list(dis.get_instructions(code))
    line_of = {each.offset: each.positions.lineno for each in instructions if each.positions is not None}
    return frozenset(
        each.offset
        for each in instructions
        if each.opname.startswith("JUMP_BACKWARD") and line_of.get(each.offset) == line_of.get(each.argval) in lines
    )


class Monitor:
    """The ``sys.monitoring`` tool of this process.

    Args:
        table: The breakpoints.
        reached: Called with the stack frame whose line has a breakpoint.
        interrupted: Called with a stack frame of a thread that has to stop.
    """

    def __init__(
        self, table: BreakTable, reached: Callable[[FrameType], object], interrupted: Callable[[FrameType], None]
    ) -> None:
        self._table = table
        self._reached = reached
        self._interrupted = interrupted
        self._lock = threading.RLock()
        self._tool: int | None = None
        #: Code objects that report lines, by id: equal ones may be of different files.
        self._watched: dict[int, CodeType] = {}
        #: Of these, the offsets of jumps that loop within one line with a breakpoint: such a line does not begin again.
        self._loops: dict[int, frozenset[int]] = {}
        #: Threads that have to stop, with their code objects that report everything.
        self._threads: dict[int, dict[int, CodeType]] = {}
        self._monitoring: Any = getattr(sys, "monitoring", None)

    @property
    def tool(self) -> int | None:
        """The number of the tool while it is in use."""
        return self._tool

    def refresh(self) -> None:
        """Take in a change of the table. Must not be called from a callback.

        Raises:
            MeshError: Other tools use all tool numbers of this process.
        """
        with self._lock:
            if self._table.active:
                self._begin()
                events = self._monitoring.events
                self._monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME)
                for code in [code for code in self._watched.values() if not self._table.lines_in(code)]:
                    self._unwatch(code)
                for code in self._watched.values():
                    self._find_loops(code)
                for innermost in sys._current_frames().values():
                    for frame in above(innermost):
                        if self._table.lines_in(frame.f_code):
                            self._watch(frame.f_code)
                self._monitoring.restart_events()
            elif self._tool is not None:
                self._monitoring.set_events(self._tool, 0)
                for code in list(self._watched.values()):
                    self._unwatch(code)
                self._end_if_idle()

    def stop_thread(self, ident: int) -> None:
        """Stop a thread where it is, or where it goes on. On the control thread; raises MeshError as `refresh` does."""
        with self._lock:
            self._begin()
            events = self._monitoring.events
            codes = self._threads[ident] = {}
            for frame in above(sys._current_frames().get(ident)):
                if is_users(frame):
                    codes[id(frame.f_code)] = frame.f_code
            for code in codes.values():
                # A loop of one line has no lines to report, only jumps.
                wanted = events.LINE | events.JUMP | events.BRANCH | events.PY_RESUME
                self._monitoring.set_local_events(self._tool, code, wanted)
            self._monitoring.restart_events()

    def spare_thread(self, ident: int) -> None:
        """Cancel `stop_thread`. Any thread."""
        with self._lock:
            codes = self._threads.pop(ident, None)
            if codes is None or self._tool is None:
                return
            for code in codes.values():
                if not any(id(code) in others for others in self._threads.values()):
                    self._monitoring.set_local_events(self._tool, code, self._events_of(code))
            self._end_if_idle()

    def close(self) -> None:
        """Release everything: this process is a forked child, and its table is empty."""
        self._lock = threading.RLock()
        self._threads.clear()
        self.refresh()

    # -- the tool

    def _begin(self) -> None:
        if self._tool is not None:
            return
        for tool in _TOOLS:
            if self._monitoring.get_tool(tool) is None:
                self._monitoring.use_tool_id(tool, "meshrt")
                break
        else:
            raise MeshError("other tools of this process use all tool ids of sys.monitoring; the debugger needs one")
        self._tool = tool
        events = self._monitoring.events
        for event, callback in (
            (events.PY_START, self._on_start),
            (events.PY_RESUME, self._on_start),
            (events.LINE, self._on_line),
            (events.JUMP, self._on_jump),
            (events.BRANCH, self._on_jump),
        ):
            self._monitoring.register_callback(tool, event, callback)

    def _end_if_idle(self) -> None:
        if self._tool is None or self._threads or self._table.active:
            return
        events = self._monitoring.events
        for event in (events.PY_START, events.PY_RESUME, events.LINE, events.JUMP, events.BRANCH):
            self._monitoring.register_callback(self._tool, event, None)
        self._monitoring.free_tool_id(self._tool)
        self._tool = None

    def _watch(self, code: CodeType) -> None:
        with self._lock:
            if self._tool is not None and id(code) not in self._watched:
                self._watched[id(code)] = code
                self._find_loops(code)

    def _find_loops(self, code: CodeType) -> None:
        self._loops[id(code)] = loops_in_a_line(code, self._table.lines_in(code))
        events = self._monitoring.get_local_events(self._tool, code) | self._events_of(code)
        self._monitoring.set_local_events(self._tool, code, events)

    def _events_of(self, code: CodeType) -> int:
        """Return the events that a code object reports because of breakpoints."""
        events = self._monitoring.events
        if id(code) not in self._watched:
            return 0
        return int(events.LINE | events.JUMP if self._loops[id(code)] else events.LINE)

    def _unwatch(self, code: CodeType) -> None:
        del self._watched[id(code)], self._loops[id(code)]
        if not any(id(code) in codes for codes in self._threads.values()):
            self._monitoring.set_local_events(self._tool, code, 0)

    # -- callbacks, on every thread

    def _on_start(self, code: CodeType, _offset: int) -> object:
        if self._threads and get_ident() in self._threads and id(code) in self._threads[get_ident()]:
            return None
        version = self._table.version
        if self._table.active and self._table.lines_in(code):
            self._watch(code)
        return self._no_more(version)

    def _no_more(self, version: object) -> object:
        # Not after a change: events were restarted, and an event that is disabled now stays disabled.
        return self._monitoring.DISABLE if self._table.version is version else None

    def _on_line(self, code: CodeType, line: int) -> object:
        version = self._table.version
        if get_ident() in self._threads:
            self._interrupted(sys._getframe(1))
        elif line in self._table.lines_in(code):
            self._reached(sys._getframe(1))
        elif not self._threads:
            return self._no_more(version)
        return None

    def _on_jump(self, code: CodeType, offset: int, _target: int) -> object:
        version = self._table.version
        if get_ident() in self._threads:
            self._interrupted(sys._getframe(1))
        elif offset in self._loops.get(id(code), ()):
            self._reached(sys._getframe(1))
        elif not self._threads:
            return self._no_more(version)
        return None

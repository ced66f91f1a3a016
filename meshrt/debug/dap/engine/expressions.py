"""The expressions of an IDE's breakpoints, evaluated at each hit: conditions, hit counts, and texts of log points.

An expression that raises does not stop the thread, as in debugpy. debugpy does not report a misspelt name, and reports
any other error at each hit in each rank. Here all errors go to one place, which reports each once and counts.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from meshrt.debug.dap.engine.pydevd_types import Breakpoint, DebuggerClass, ThreadInfo
from meshrt.debug.dap.operations import Raising

__all__ = ["Expressions", "expressions"]

T = TypeVar("T")

#: Characters of what is told of an expression, and of what it raised.
_LONGEST = 300


def _ignore(_raised: Raising) -> None:
    """Ignore an error: no listener is set."""


class Expressions:
    """The expressions of this process. On the threads that run user code, inside the engine's callbacks."""

    def __init__(self) -> None:
        #: Told of each that raises.
        self.heard: Callable[[Raising], None] = _ignore

    def replace(self, pydb: DebuggerClass) -> None:
        """Evaluate in the place of the engine; ``pydb``: its class."""
        pydb.handle_breakpoint_condition = lambda _debugger, _info, point, frame: self.holds(point, frame)
        pydb.handle_breakpoint_expression = lambda _debugger, point, info, frame: self.log(point, info, frame)

    def holds(self, point: Breakpoint, frame: FrameType) -> bool:
        """Return whether a breakpoint stops ``frame``."""
        count = getattr(point, "hit_condition", None)  # those of exceptions have none
        if count:
            with point._hit_condition_lock:
                point._hit_count += 1
                numbered = count.replace("@HIT@", str(point._hit_count))
            if self._value("hits", numbered, count, point, frame, bool):
                return True
        condition = point.condition
        return bool(condition and self._value("condition", condition, condition, point, frame, bool))

    def log(self, point: Breakpoint, info: ThreadInfo, frame: FrameType) -> None:
        """Set the message of a log point at ``frame``; no message if its expression raises."""
        info.pydev_message = self._value("log", point.expression, "", point, frame, str) or ""

    def _value(
        self, what: str, expression: str, written: str, point: Breakpoint, frame: FrameType, of: Callable[[object], T]
    ) -> T | None:
        try:
            return of(eval(expression, frame.f_globals, frame.f_locals))
        except BaseException as error:  # whatever it does must not change the program
            line = getattr(point, "line", frame.f_lineno)
            error_type = type(error).__name__
            self.heard(Raising(what, frame.f_code.co_filename, line, written[:_LONGEST], error_type, _text(error)))
            return None


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_LONGEST]
    except BaseException as problem:  # it is the user's, as the error is
        return f"(str() of the error raises {type(problem).__name__})"


#: The expressions of this process.
expressions = Expressions()

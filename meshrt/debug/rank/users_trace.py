"""The user's own trace function (``sys.settrace``; coverage): put aside while the debugger works, then put back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from meshrt.debug.stepping import is_hidden_code

__all__ = ["TraceFunction", "UsersTrace", "above", "is_ours"]

#: A trace function for ``sys.settrace``; it returns such a function, or None.
TraceFunction = Callable[[FrameType, Any, Any], Any]


def is_ours(function: TraceFunction | None) -> bool:
    """Whether a trace function is the debugger's."""
    if type(getattr(function, "__self__", None)).__module__.startswith("meshrt.debug."):
        return True
    code = getattr(function, "__code__", None)
    return code is not None and is_hidden_code(code)


def above(frame: FrameType | None) -> Iterator[FrameType]:
    """Iterate over ``frame`` and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


class UsersTrace:
    """The user's own trace function of one thread, while it is put aside. On that thread."""

    def __init__(self) -> None:
        self._function: TraceFunction | None = None
        #: The local trace functions of the stack frames at that time.
        self._frames: dict[FrameType, TraceFunction | None] = {}

    def __bool__(self) -> bool:
        return self._function is not None

    def put_aside(self, frames: Iterable[FrameType]) -> None:
        """Stop tracing the calling thread, and keep the user's trace function, also those of ``frames``."""
        function = sys.gettrace()
        if function is not None and not is_ours(function):
            self._function = function
            self._frames = {frame: frame.f_trace for frame in frames}
        sys.settrace(None)

    def put_back(self) -> bool:
        """Trace the calling thread with the user's function again. Return whether there was one."""
        function, self._function = self._function, None
        frames, self._frames = self._frames, {}
        now = sys.gettrace()
        if function is None or (now is not None and not is_ours(now)):
            return False  # none was kept, or the user has set another one meanwhile
        for frame, local in frames.items():
            if local is not None:
                frame.f_trace = local
            elif frame.f_trace is not None:
                del frame.f_trace
        sys.settrace(function)
        return True

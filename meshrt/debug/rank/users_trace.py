"""The user's own trace function (``sys.settrace``; coverage): put aside while the debugger is at work, then put back."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from meshrt.debug.stepping import is_hidden_code

__all__ = ["UsersTrace", "is_ours"]


def is_ours(function: Any) -> bool:
    """Whether a trace function is the debugger's."""
    if type(getattr(function, "__self__", None)).__module__.startswith("meshrt.debug."):
        return True
    code = getattr(function, "__code__", None)
    return code is not None and is_hidden_code(code)


class UsersTrace:
    """What the calling thread was traced with, once it was."""

    def __init__(self) -> None:
        self._function: Any = None
        #: The local trace functions of the stack frames that were there.
        self._frames: dict[FrameType, Any] = {}

    def put_aside(self, frame: FrameType | None) -> None:
        """Trace the calling thread no more; what the user traces it with is remembered, above ``frame`` too."""
        function = sys.gettrace()
        if function is not None and not is_ours(function):
            self._function = function
            self._frames = {}
            while frame is not None:
                self._frames[frame] = frame.f_trace
                frame = frame.f_back
        sys.settrace(None)

    def local(self, frame: FrameType) -> Any:
        """Return what the user traces ``frame`` with."""
        return self._frames.get(frame)

    def put_back(self) -> bool:
        """Trace the calling thread as the user wants it, if they do."""
        function, self._function = self._function, None
        frames, self._frames = self._frames, {}
        if function is None:
            return False
        for frame, local in frames.items():
            if local is not None:
                frame.f_trace = local
            elif frame.f_trace is not None:
                del frame.f_trace
        sys.settrace(function)
        return True

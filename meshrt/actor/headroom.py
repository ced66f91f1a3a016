"""Room on the stack for the runtime's own work, when user code has recursed almost to the limit."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

__all__ = ["SHORTAGES", "Headroom", "headroom", "say_unavailable"]

#: Errors that may be raised anywhere in a process that is short of a resource.
SHORTAGES = (RecursionError, MemoryError, OSError, ImportError)

#: Calls deep: more than loading the debugger and a command at its prompt take.
_ROOM = 1500
#: Seconds after which the limit is lowered, if that could not be done at once.
_LATER = 0.1


class Headroom:
    """Raises the recursion limit of this process while any thread is in it (``with``). Also for signal handlers."""

    def __init__(self) -> None:
        #: Runs a function on another thread, whose stack is short, after some seconds.
        self.call_later: Callable[[float, Callable[[], None]], None] | None = None
        self._lock = threading.RLock()
        self._inside = 0
        #: The user's limit, and the one that was set instead; 0: it is the user's.
        self._before = self._raised = 0

    def __enter__(self) -> None:
        # Called with next to no room: as few calls as possible until there is some.
        with self._lock:
            self._inside += 1
            if not self._raised:
                self._before = sys.getrecursionlimit()
                self._raised = self._before + _ROOM
                sys.setrecursionlimit(self._raised)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
        self._lower(True)

    def _lower(self, again: bool) -> None:
        with self._lock:
            if self._inside or not self._raised:
                return
            if sys.getrecursionlimit() == self._raised:  # or else user code has set another one meanwhile
                try:
                    sys.setrecursionlimit(self._before)
                except RecursionError:  # the stack of this thread is still deeper
                    if again and self.call_later is not None:
                        self.call_later(_LATER, lambda: self._lower(False))
                    return
            self._raised = 0


headroom = Headroom()
"""The one of this process."""

_said: list[bool] = []


def say_unavailable(error: BaseException) -> None:
    """Say once, on standard error, that the debugger could not be started; the program goes on."""
    if _said:
        return
    _said.append(True)
    try:
        text = f"{type(error).__name__}: {error}" if isinstance(error, OSError) else type(error).__name__
        os.write(2, f"meshrt: the debugger cannot be opened here ({text}); the program continues\n".encode())
    except Exception:
        pass  # then nothing can be said

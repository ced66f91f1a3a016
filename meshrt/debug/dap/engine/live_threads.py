"""The threads that live, as pydevd is shown them where it sees what runs by sys.monitoring."""

from __future__ import annotations

import sys
import threading
from collections import deque
from types import ModuleType
from typing import Any

__all__ = ["LiveThreads"]


class LiveThreads(ModuleType):
    """`threading`, as the engine sees it by sys.monitoring: a thread that is about to end is none.

    When what a thread knows of itself goes, so may its `Thread`, and code runs: a set of weak references lets go of it.
    To the engine that is code of an unknown thread, for which it has Python make up another `Thread`. This one stays,
    under a number that the next thread gets. The engine takes it for that thread, and its stops cannot be resumed.
    """

    def __init__(self) -> None:
        super().__init__("threading")
        #: Threads that have done all that is theirs, by their number in the kernel.
        self._ended: deque[int] = deque(maxlen=1024)
        self._module: Any = None
        self._delete: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def current_thread(self) -> threading.Thread | None:
        """Return the calling thread; None: it ends."""
        if threading.get_native_id() in self._ended and threading.get_ident() not in vars(threading)["_active"]:
            return None
        return threading.current_thread()  # also if the kernel has given out the number again

    def watch(self, functions: Any) -> None:
        """Begin: ``functions`` are those that the events go to."""
        self._module = sys.modules[functions.start_monitoring.__module__]
        self._module.threading = self
        kind: Any = threading.Thread
        delete = self._delete = kind._delete
        ended = self._ended

        def _delete(thread: threading.Thread) -> None:
            ended.append(threading.get_native_id())
            delete(thread)

        kind._delete = _delete

    def leave(self) -> None:
        """Leave everything as it was."""
        if self._module is not None:
            self._module.threading = threading
            kind: Any = threading.Thread
            kind._delete = self._delete
            self._module = None

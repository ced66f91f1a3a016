"""The threads that live, as pydevd is shown them where it sees what runs by sys.monitoring."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Protocol, cast

from meshrt.debug.dap.engine.pydevd_types import Monitoring, TracingTool

__all__ = ["LiveThreads"]


class _ThreadClass(Protocol):
    """`threading.Thread`, with what Python calls when a thread ends."""

    _delete: Callable[[threading.Thread], None]


_THREAD = cast(_ThreadClass, threading.Thread)


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
        self._module: TracingTool | None = None
        self._delete = _THREAD._delete

    def __getattr__(self, name: str) -> object:
        return getattr(threading, name)

    def current_thread(self) -> threading.Thread | None:
        """Return the calling thread; None: it ends."""
        if threading.get_native_id() in self._ended and threading.get_ident() not in vars(threading)["_active"]:
            return None
        return threading.current_thread()  # also if the kernel has given out the number again

    def watch(self, functions: Monitoring) -> None:
        """Begin: ``functions`` are those that the events go to."""
        self._module = cast(TracingTool, sys.modules[functions.start_monitoring.__module__])
        self._module.threading = self
        delete = self._delete = _THREAD._delete
        ended = self._ended

        def _delete(thread: threading.Thread) -> None:
            ended.append(threading.get_native_id())
            delete(thread)

        _THREAD._delete = _delete

    def leave(self) -> None:
        """Leave everything as it was."""
        if self._module is not None:
            self._module.threading = threading
            _THREAD._delete = self._delete
            self._module = None

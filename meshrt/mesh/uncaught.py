"""Exceptions of the script that no caller gets: those of threads, and of tasks that are never awaited.

Python prints an uncaught exception of a thread, and reports it nowhere else. A program that has a
`threading.excepthook` of its own handles them itself: nothing is watched then.

asyncio logs the exception of such a task when the task is dropped, and reports it nowhere else. The exception handler
of the loop does that, which belongs to the program; so the log records are watched. A program that has a handler of its
own, or switches that logging off, handles these exceptions itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Unawaited", "unwatch_threads", "watch_threads"]

#: Called with the exception and where it was raised, ``"thread 'loader'"``; on its thread.
Watcher = Callable[[BaseException, str], None]

_LOGGER = "asyncio"
_SAID = "exception was never retrieved"
#: How many errors are kept: each keeps the objects of its frames.
_KEPT = 10

_watchers: list[Watcher] = []
_pid = 0


def watch_threads(watcher: Watcher) -> None:
    """Report uncaught exceptions of this process's threads to ``watcher`` from now on."""
    global _pid
    if _pid != os.getpid():
        _watchers.clear()  # those of the process that this one is a fork of
        _pid = os.getpid()
    if watcher not in _watchers:
        _watchers.append(watcher)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _hook


def unwatch_threads(watcher: Watcher) -> None:
    """Undo `watch_threads`."""
    if watcher in _watchers:
        _watchers.remove(watcher)
    if not _watchers and threading.excepthook is _hook:
        threading.excepthook = threading.__excepthook__


class Unawaited:
    """The errors of tasks that are never awaited.

    Args:
        counts: Whether an error is to be kept.
    """

    def __init__(self, counts: Callable[[BaseException], bool]) -> None:
        self._counts = counts
        #: The latest ones. Nothing is done with them at once: a task may be dropped on any thread, under any lock.
        self.errors: deque[BaseException] = deque(maxlen=_KEPT)

    def install(self) -> None:
        """Begin to watch."""
        logging.getLogger(_LOGGER).addFilter(self._look)

    def uninstall(self) -> None:
        """Undo `install`."""
        logging.getLogger(_LOGGER).removeFilter(self._look)

    def _look(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None and _SAID in str(record.msg) and self._counts(error):
            self.errors.append(error)
        return True


def _hook(args: threading.ExceptHookArgs) -> None:
    try:
        threading.__excepthook__(args)
    finally:  # what it prints may have no reader
        _tell(args)


def _tell(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or issubclass(args.exc_type, SystemExit) or os.getpid() != _pid:
        return
    name = args.thread.name if args.thread is not None else "?"
    for watcher in tuple(_watchers):
        watcher(args.exc_value, f"thread {name!r}")

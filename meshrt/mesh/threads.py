"""The threads of the script: their uncaught exceptions, and when the main one has ended.

Python prints an uncaught exception of a thread, and reports it nowhere else.

A program that has a `threading.excepthook` of its own handles them itself: nothing is watched then.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

__all__ = ["at_main_end", "unwatch_threads", "watch_threads"]

#: Called with the exception and where it was raised, ``"thread 'loader'"``; on its thread.
Watcher = Callable[[BaseException, str], None]

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


def at_main_end(function: Callable[[], None]) -> None:
    """Call ``function`` when the main thread has ended, before Python waits for other threads.

    `atexit` calls its functions after that. This hook is private to Python's library (``concurrent.futures`` uses it
    for the same reason); where it does not exist, or it is too late, nothing is called.
    """
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with contextlib.suppress(RuntimeError):
            register(function)


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

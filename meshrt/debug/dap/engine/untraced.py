"""What a thread does that the engine is not to see.

Functions that are registered to be called at a fork are not traced. A step into `os.fork` would stop there, also in
the child, where no engine could resume it.
"""

from __future__ import annotations

import os
import threading

from meshrt.debug.dap.engine.loading import TRACES, loaded
from meshrt.debug.dap.engine.pydevd_types import Pydevd, ThreadInfo

__all__ = ["Untraced", "pass_over_forks"]


class Untraced:
    """What a thread does between enter and exit, which it calls, is not traced; ``info``: what the engine knows of it.

    No generator of contextlib: to enter that one would be traced.
    """

    def __init__(self, pydevd: Pydevd, info: ThreadInfo) -> None:
        self._info = info
        self._monitoring = None if TRACES else pydevd.pydevd_sys_monitoring
        self._suspended = False

    def __enter__(self) -> None:
        if self._monitoring is not None:
            self._suspended = self._monitoring.suspend_current_thread_tracing()
        self._info.is_tracing += 1

    def __exit__(self, *_error: object) -> None:
        self._info.is_tracing -= 1
        if self._monitoring is not None and self._suspended:
            self._monitoring.resume_current_thread_tracing()


#: By thread.
_forking: dict[int, Untraced] = {}
_registered = threading.Lock()


def pass_over_forks() -> None:
    """From now on see nothing of what is called at a fork."""
    if _registered.acquire(blocking=False):  # once in a process
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)


def _before_fork() -> None:
    pydevd, ident = loaded(), threading.get_ident()
    # Not by `threading.current_thread`, into which it would step.
    thread = vars(threading)["_active"].get(ident)
    if pydevd is not None and thread is not None and pydevd.get_global_debugger() is not None:
        _forking[ident] = untraced = Untraced(pydevd, pydevd.set_additional_thread_info(thread))
        untraced.__enter__()


def _after_fork() -> None:
    untraced = _forking.pop(threading.get_ident(), None)
    if untraced is not None:
        untraced.__exit__()

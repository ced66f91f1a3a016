"""Threads of the runtime's own, in which no user code runs."""

from __future__ import annotations

import threading

__all__ = ["RuntimeThread"]


class RuntimeThread(threading.Thread):
    """A thread that serves while all other threads of the process may be stopped: debuggers leave it alone.

    The attributes are those by which pydevd, the engine of debugpy and PyCharm, knows threads that it neither traces
    nor stops nor shows.
    """

    pydev_do_not_trace = True
    is_pydev_daemon_thread = True

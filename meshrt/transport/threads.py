"""Threads of the runtime's own, in which no user code runs."""

from __future__ import annotations

import threading

__all__ = ["RuntimeThread"]


class RuntimeThread(threading.Thread):
    """A thread that serves while everything else of the process may stand: debuggers pass it over.

    The attributes are those by which pydevd, the engine of debugpy and PyCharm, knows threads that it neither traces
    nor stops nor shows.
    """

    pydev_do_not_trace = True
    is_pydev_daemon_thread = True

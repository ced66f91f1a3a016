"""Threads of the runtime's own, in which of user code done-callbacks alone run; and whether a thread may wait."""

from __future__ import annotations

import sys
import threading

__all__ = ["RuntimeThread", "may_wait", "on_event_loop"]


class RuntimeThread(threading.Thread):
    """A thread that serves while all other threads of the process may be stopped: debuggers leave it alone.

    The attributes are those by which pydevd, the engine of debugpy and PyCharm, knows threads that it neither traces
    nor stops nor shows.
    """

    pydev_do_not_trace = True
    is_pydev_daemon_thread = True


def on_event_loop() -> bool:
    """Whether this thread runs an event loop now: then nothing may wait here."""
    asyncio_events = sys.modules.get("asyncio.events")
    return asyncio_events is not None and asyncio_events._get_running_loop() is not None


def may_wait() -> bool:
    """Whether this thread may wait for other processes: it neither runs an event loop nor is the runtime's own."""
    return not on_event_loop() and not isinstance(threading.current_thread(), RuntimeThread)

"""Processes that a signal stops for a while."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from meshrt.transport.kernel import kernel_state
from tests.support.waiting import wait_until

__all__ = ["paused"]


@contextlib.contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Stop processes with SIGSTOP, and let them go on at the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: all(kernel_state(pid) == "T" for pid in pids), 5, f"{pids} stop")
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

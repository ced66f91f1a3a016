"""Processes that a signal stops for a while."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from meshrt.transport.kernel import kernel_state
from tests.support.waiting import wait_until

__all__ = ["pause", "paused"]


def pause(*pids: int) -> None:
    """Stop processes with SIGSTOP, and wait until they are: the signal is only sent when ``os.kill`` returns."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(map(_is_paused, pids)), 20, f"{pids} stop")


def _is_paused(pid: int) -> bool:
    """Whether each thread is stopped: the signal reaches one after the other."""
    return all(kernel_state(int(thread)) == "T" for thread in os.listdir(f"/proc/{pid}/task"))


@contextlib.contextmanager
def paused(*pids: int) -> Iterator[None]:
    """`pause` processes in the block, and let them go on at its end."""
    try:
        pause(*pids)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # killed meanwhile
                os.kill(pid, signal.SIGCONT)

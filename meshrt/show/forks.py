"""A process that a command forks for something else: it leaves the command, and finds loaded what that has loaded."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

__all__ = ["ChildProcess", "fork"]


class ChildProcess(BaseException):
    """Leaves the command, in the process that it has forked, down to the first frame of the process (`meshrt.cli`).

    Args:
        run: What the process does from there on. Returns its exit code.
    """

    def __init__(self, run: Callable[[], int]) -> None:
        super().__init__()
        self.run = run


def fork(run: Callable[[], int]) -> int:
    """Fork a process that does ``run``; returns its pid.

    In that process the collector never looks at what the command had loaded before: it shares that memory.

    Raises:
        ChildProcess: In that process.
    """
    gc.freeze()  # a collection would write to every object, and so copy all memory that both processes share
    pid = os.fork()
    if pid == 0:
        raise ChildProcess(run)
    gc.unfreeze()
    return pid

"""How and when a rank has ended, from what the kernel, its log and its fault file say."""

from __future__ import annotations

import os
import signal

from meshrt.hooks.fate import Fate
from meshrt.host.child import Child

__all__ = ["end_of", "fate_of", "reap"]

#: Longest time from the closing of a process' files to the report of its end; ns.
_TEARDOWN = 100_000_000


def reap(pid: int) -> int:
    """Return the wait status of a child of this process that has ended."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def end_of(child: Child, noticed: tuple[int, int]) -> tuple[int, int]:
    """Return when a process ended, such that no effect of its end appears to be earlier; monotonic ns.

    Its files are closed, which its peers notice, before its pidfd reports its end, and the link to its agent is the
    first of them. The time between the two depends on the load of the machine.

    Args:
        noticed: When its pidfd was ready: not before, not after.
    """
    low, high = noticed
    if child.closed is not None and high - child.closed[1] < _TEARDOWN:
        return child.closed
    # User code has closed the link before, or a child of it holds the link.
    return (low, high) if child.link.at_end() else (low - _TEARDOWN, high)


def fate_of(child: Child, status: int | None, span: tuple[int, int], *, stopping: bool) -> Fate:
    """Return the fate of a rank whose process has ended.

    Args:
        status: Its wait status; None: it is not known.
        span: When it ended: not before, not after; monotonic ns.
        stopping: Its mesh is being stopped.
    """
    exit_code = os.waitstatus_to_exitcode(status) if status is not None and os.WIFEXITED(status) else None
    number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
    host, pid = child.birth.host, child.pid
    if (stopping and not _crashed(child, exit_code, number)) or (child.joined and _has_left(child, exit_code)):
        hint = "" if stopping else "has ended"
        return Fate("stopped", host=host, pid=pid, exit_code=exit_code, signal=number, hint=hint)
    return Fate(
        "died",
        host=host,
        pid=pid,
        exit_code=exit_code,
        signal=number,
        stack=child.crash_text(),
        log_tail=child.log.tail.short(),
        hint=child.hint,
        low=span[0] if child.leaving is None else min(span[0], child.leaving.at),
        high=span[1],
    )


def _crashed(child: Child, exit_code: int | None, number: int | None) -> bool:
    """Whether a rank that was to stop has ended otherwise: neither with its actors nor by a request to end."""
    if number == signal.SIGKILL:
        return not child.killed
    return exit_code != 0 and number != signal.SIGTERM


def _has_left(child: Child, exit_code: int | None) -> bool:
    """Whether a process that has joined has ended as its script does, or by an exception that it has reported."""
    reported = child.leaving is not None and child.leaving.reported
    return exit_code == 0 or (reported and exit_code is not None)

"""The time of the event that woke the agent up: the agent may have waited for a processor since."""

from __future__ import annotations

import os
import time

__all__ = ["Waking"]

#: Longest wake-up time of an idle processor, which the kernel does not count as waiting for it; ns.
#: With 0, in a virtual machine, the peers of a process that had ended were awake before the agent in 10 of 200 runs.
_LATENCY = 5_000_000


class Waking:
    """Around every wait for events: `begin`, the wait, `woken`."""

    def __init__(self) -> None:
        try:
            self._schedstat = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without scheduler statistics
            self._schedstat = -1
        self._delayed = 0
        self._begin = self._woken = self._before = time.monotonic_ns()

    def begin(self) -> None:
        """A wait begins."""
        self._before = self._woken
        self._delayed = self._delay()
        self._begin = time.monotonic_ns()

    def woken(self) -> None:
        """It has ended."""
        self._woken = time.monotonic_ns()

    def span(self) -> tuple[int, int]:
        """Return when the events of this wait have happened: earliest and latest time; monotonic ns."""
        delay = self._delay() - self._delayed
        if self._schedstat < 0 or self._woken - self._begin < 50_000:
            # It did not wait: that may have been at any time since the last look.
            return self._before - _LATENCY, self._woken
        return max(self._before, self._woken - max(0, delay)) - _LATENCY, self._woken

    def _delay(self) -> int:
        """Return for how long this thread has waited for a processor so far, ns (proc(5), ``schedstat``)."""
        if self._schedstat < 0:
            return 0
        try:
            return int(os.pread(self._schedstat, 100, 0).split()[1])
        except OSError:
            return self._delayed  # as if it had not waited since

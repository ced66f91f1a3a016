"""Whether the kernel's out-of-memory killer was at work: it counts what it kills, by control group.

Where that cannot be read (`meshrt.store.cgroup`) there is no evidence, and nothing is said.
"""

from __future__ import annotations

import time

from meshrt.store.cgroup import memory_groups

__all__ = ["OutOfMemory"]

#: Seconds between a kill and the end of the process, at most.
_SOON = 2.0


class OutOfMemory:
    """The counter of the control group that this process and its children are in."""

    def __init__(self) -> None:
        # The nearest one that counts: the topmost group has no counter.
        self._group = next((group for group in memory_groups() if group.kills() is not None), None)
        self._seen = self._count()
        #: Kills that were not assigned to the end of a process yet, and until when (monotonic) they may be.
        self._kills = 0
        self._until = 0.0

    def look(self) -> None:
        """Count; to be called from time to time."""
        now = self._count()
        if now is None or self._seen is None:
            return
        if now > self._seen:
            self._kills, self._until = self._kills + now - self._seen, time.monotonic() + _SOON
        elif time.monotonic() > self._until:
            self._kills = 0
        self._seen = now

    def evidence(self) -> str:
        """Return the evidence that a process was just killed for lack of memory, or ""."""
        self.look()
        if not self._kills:
            return ""
        self._kills -= 1
        return "out of memory: the kernel's oom_kill counter of its control group has just risen"

    def _count(self) -> int | None:
        return None if self._group is None else self._group.kills()

"""Whether the kernel's out-of-memory killer was at work: it counts what it kills, by control group.

Documented in the kernel's Documentation/admin-guide/cgroup-v2.rst (``memory.events``) and cgroup-v1/memory.rst
(``memory.oom_control``). Where neither can be read there is no evidence, and nothing is said.
"""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["OutOfMemory"]

#: Seconds between a kill and the end of the process, at most.
_SOON = 2.0
_MEMBERSHIP = "/proc/self/cgroup"
_V2 = "/sys/fs/cgroup"
_V1 = "/sys/fs/cgroup/memory"


class OutOfMemory:
    """The counter of the control group that this process and its children are in."""

    def __init__(self) -> None:
        self._file = _counter_file()
        self._seen = self._count()
        #: Kills that no end of a process was put down to yet, and until when (monotonic) one may be.
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
        """Return what speaks for it that a process which was just killed was killed for want of memory, or ""."""
        self.look()
        if not self._kills:
            return ""
        self._kills -= 1
        return "out of memory: the kernel's oom_kill counter of its control group has just risen"

    def _count(self) -> int | None:
        if self._file is None:
            return None
        try:
            lines = self._file.read_text().splitlines()
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
        except (OSError, ValueError, IndexError):
            return None


def _counter_file() -> Path | None:
    try:
        lines = Path(_MEMBERSHIP).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" and path:
            candidates = [Path(_V2 + path) / "memory.events"]
        elif "memory" in controllers.split(","):
            candidates = [Path(_V1 + path) / "memory.oom_control", Path(_V1) / "memory.oom_control"]
        else:
            continue
        found = next((file for file in candidates if file.exists()), None)
        if found is not None:
            return found
    return None

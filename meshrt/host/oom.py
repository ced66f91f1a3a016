"""Whether the kernel's out-of-memory killer was at work: it counts what it kills, by control group.

Documented in the kernel's Documentation/admin-guide/cgroup-v2.rst (``memory.events``) and cgroup-v1/memory.rst
(``memory.oom_control``). Where neither can be read there is no evidence, and nothing is said.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["OutOfMemory"]

_MEMBERSHIP = "/proc/self/cgroup"
_V2 = "/sys/fs/cgroup"
_V1 = "/sys/fs/cgroup/memory"


class OutOfMemory:
    """The counter of the control group that this process and its children are in."""

    def __init__(self) -> None:
        self._file = _counter_file()
        self._seen = self._count()

    def evidence(self) -> str:
        """Return what speaks for the out-of-memory killer since the last time, or ""."""
        before, self._seen = self._seen, self._count()
        if before is None or self._seen is None or self._seen <= before:
            return ""
        return f"out of memory: the kernel's oom_kill counter of its control group rose from {before} to {self._seen}"

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

"""The control group that this process is in: its memory limit, and the kernel's count of out-of-memory kills.

A process reads its group from ``/proc/self/cgroup``. In a container that path may be that of the machine, which is not
visible there: then the mounted directory is the group itself. A limit of any group above holds as well.

Documented in the kernel's Documentation/admin-guide/cgroup-v2.rst ("Memory Interface Files") and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from meshrt.transport.reserve import reserve

__all__ = ["MemoryGroup", "memory_groups"]

_MEMBERSHIP = "/proc/self/cgroup"
_V2 = "/sys/fs/cgroup"
_V1 = "/sys/fs/cgroup/memory"
#: Version 1 shows "unlimited" as about 2**63; no machine has as much as this.
_UNLIMITED = 1 << 60


class MemoryGroup(NamedTuple):
    """A group of which the files of the memory controller can be seen.

    Attributes:
        folder: Where they are.
        version: 1 or 2.
    """

    folder: Path
    version: int

    def limit_and_use(self) -> tuple[int, int] | None:
        """Return the limit and the memory in use, bytes, without the cache of files; None: it has no limit."""
        limit = self._read("memory.max" if self.version == 2 else "memory.limit_in_bytes")
        used = self._read("memory.current" if self.version == 2 else "memory.usage_in_bytes")
        try:
            # "max" where there is none in version 2, whose topmost group has no such files.
            if not limit.isdecimal() or int(limit) >= _UNLIMITED:
                return None
            stat = dict(line.split() for line in self._read("memory.stat").splitlines())
            return int(limit), max(0, int(used) - int(stat.get("total_inactive_file", stat.get("inactive_file", 0))))
        except ValueError:
            return None

    def kills(self) -> int | None:
        """Return how many processes were killed for want of memory here and below; None: that is not counted."""
        for line in self._read("memory.events" if self.version == 2 else "memory.oom_control").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.strip().isdecimal():
                return int(count)
        return None

    def _read(self, name: str) -> str:
        """Return a file's text; "" where there is no such file."""
        # UTF-8 is loaded already: Python 3.13.0 loads no other codec in a directory that is gone.
        try:
            return reserve.run((self.folder / name).read_text, encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


def memory_groups() -> list[MemoryGroup]:
    """Return the group of this process, and those above it; empty where none can be seen."""
    found: list[MemoryGroup] = []
    for line in _lines(_MEMBERSHIP):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in controllers.split(","):
            found += _upwards(Path(_V1), path, 1)
        elif controllers == "" and path:
            found += _upwards(Path(_V2), path, 2)
    return found


def _upwards(mounted: Path, path: str, version: int) -> list[MemoryGroup]:
    own = mounted / path.lstrip("/")
    if ".." in own.parts or not own.is_dir():
        own = mounted
    folders = [own, *own.parents]
    return [MemoryGroup(folder, version) for folder in folders[: folders.index(mounted) + 1] if folder.is_dir()]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []

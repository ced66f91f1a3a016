"""The facts about the machine without which no number means anything."""

import os
import platform
from pathlib import Path

from bench.peers import Contestant
from bench.processes import load_average

__all__ = ["facts"]

GIB = 1 << 30


def facts(contestants: list[Contestant]) -> dict[str, str]:
    """Return what is shown above the table; the load average is the one before the run."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    found = {
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}, {processor()}",
        "memory": f"{memory:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load average": f"{load_average():.1f} before the run",
    }
    found |= {each.name: each.version() for each in contestants if each.distribution}
    return found


def processor() -> str:
    """Return the name of the processor, as the kernel tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

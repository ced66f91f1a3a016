"""What the kernel tells about a process, by its number.

A process that has ended has nothing; any other failure is an OSError: "cannot look" is not "it has ended".
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path

from meshrt.transport.reserve import reserve

__all__ = [
    "boot_id",
    "is_stopped",
    "kernel_state",
    "pid_namespace",
    "run_delays",
    "start_of",
    "started_before",
    "stat_fields",
]

#: The kernel's unit for the start of a process: clock ticks in a second.
_TICKS = os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> list[str]:
    """Return what ``/proc/PID/stat`` says behind the name of the process, its state first; empty when it has ended.

    Raises OSError if that cannot be read.
    """
    try:
        text = reserve.run(Path(f"/proc/{pid}/stat").read_text, errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def kernel_state(pid: int) -> str:
    """Return the letter of ``/proc/PID/stat``: ``"T"`` or ``"t"`` for a stopped process; "" when it has ended."""
    return next(iter(stat_fields(pid)), "")


def is_stopped(pid: int) -> bool:
    """Whether a signal, or a debugger, has stopped a process."""
    return kernel_state(pid) in ("T", "t")


def run_delays(pid: int) -> dict[int, int]:
    """Return for how long each thread of a process has waited for a processor so far (ns), by its id.

    Empty when the process has ended, or where it cannot be looked up. Source: proc(5), ``schedstat``.
    """
    delays = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                delays[int(thread)] = int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1])
    return delays


def start_of(pid: int) -> int:
    """Return when a process was started, clock ticks since the machine was; 0 when it has ended and was reaped.

    With its pid this identifies a process, also against a later one with the same pid. Raises OSError.
    """
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def started_before(start: int, when: int) -> bool:
    """Whether `start_of` says that the process was there at ``when``, monotonic ns; to a clock tick or two."""
    # The monotonic clock rests while the machine sleeps, that of the kernel's table does not.
    suspended = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return start * 1_000_000_000 // _TICKS - suspended <= when + 2_000_000_000 // _TICKS


@functools.cache
def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def pid_namespace() -> int:
    """Return the number of the pid namespace in which this process looks for others; 0: it is unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0

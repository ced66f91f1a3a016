"""What the kernel tells about a process, by its number."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_stopped", "kernel_state", "stat_fields"]


def stat_fields(pid: int) -> list[str]:
    """Return what ``/proc/PID/stat`` says behind the name of the process, its state first; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def kernel_state(pid: int) -> str:
    """Return the letter of ``/proc/PID/stat``: ``"T"`` or ``"t"`` for a stopped process; "" when it is gone."""
    return next(iter(stat_fields(pid)), "")


def is_stopped(pid: int) -> bool:
    """Whether a signal, or a debugger, has stopped a process."""
    return kernel_state(pid) in ("T", "t")

"""What this process holds at a moment, so that two moments can be compared. Knows nothing of the runtime's inside."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Footprint", "marked_processes"]

_OF_PROGRAM = ("descriptor ", "thread meshrt-")


@dataclass(frozen=True)
class Footprint:
    """Descriptors, threads, processes, files in the runtime directory and named segments, each as a text."""

    items: frozenset[str]

    @classmethod
    def now(cls) -> Footprint:
        """Look now."""
        return cls(frozenset([*_descriptors(), *_threads(), *_processes(), *_files()]))

    def beyond(self, before: Footprint, *, of_program: bool = False) -> list[str]:
        """Return what is here and was not there before.

        Args:
            of_program: A program goes on, which may have opened descriptors, for its store for example, and started
                threads of the runtime: without those.
        """
        found = sorted(self.items - before.items)
        return [item for item in found if not item.startswith(_OF_PROGRAM)] if of_program else found


def _descriptors() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        if int(number) <= 2:
            continue  # pytest captures these, and does not where a module ends
        try:
            found.append(f"descriptor {number} -> {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:
            pass  # the descriptor of the listing itself
    return found


def _threads() -> list[str]:
    return [f"thread {thread.name} ({thread.native_id})" for thread in threading.enumerate()]


def _processes() -> list[str]:
    own = {process.pid: "child" for process in psutil.Process().children(recursive=True)}
    for pid in marked_processes():
        own.setdefault(pid, "orphan")
    return [f"{kind} process {pid} {_title(pid)}" for pid, kind in own.items()]


def marked_processes() -> list[int]:
    """Return the pids of all processes that tests of this run started, whoever their parent is now."""
    mark = f"MESHRT_RUNTIME_DIR={os.environ['MESHRT_RUNTIME_DIR']}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
            except OSError:
                pass  # ended meanwhile, or of another user
    return found


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _files() -> list[str]:
    runtime = Path(os.environ["MESHRT_RUNTIME_DIR"])
    # Not `rglob`: what ends just now takes its folder away under one's feet.
    sockets = [f"file {Path(folder, name)}" for folder, names, files in os.walk(runtime) for name in (*names, *files)]
    return sockets + [f"segment {name}" for name in os.listdir("/dev/shm") if "meshrt" in name]

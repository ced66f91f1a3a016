"""What this process, and the programs that it has started, have at a moment."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from meshrt.testing.leaks import Footprint

__all__ = ["footprint", "marked_processes", "resident_bytes"]


def footprint() -> Footprint:
    """Look now: also for processes that are no children any more, and files in the runtime directory."""
    now = Footprint.now(*_files())
    known = {int(each.split()[1].rstrip(",")) for each in now.items if each.startswith("process ")}
    return Footprint(now.items | {f"process {pid}, an orphan" for pid in marked_processes() if pid not in known})


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


def resident_bytes(pid: int) -> int:
    """Return how much memory of a process is in RAM, what it shares with others included; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _files() -> list[str]:
    runtime = Path(os.environ["MESHRT_RUNTIME_DIR"])
    # Not `rglob`: what ends just now takes its folder away under one's feet.
    return [f"file {Path(folder, name)}" for folder, names, files in os.walk(runtime) for name in (*names, *files)]

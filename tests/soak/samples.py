"""What the processes of a program use, looked up in /proc: memory, descriptors, threads, segments, files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["STEADY", "Use", "agents_of", "files_below", "killable", "ranks_of", "segments_of", "use_of"]

#: The mesh that stays.
STEADY = "steady"

_ANONYMOUS = re.compile(rb"^Anonymous:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Use:
    """One look at one process.

    Attributes:
        memory: Bytes of private memory (anonymous pages).
        descriptors: All but those of memory files.
        chunks: Descriptors of memory files, which come and go with what is in the store (its bytes: `segments_of`).
    """

    memory: int
    descriptors: int
    chunks: int
    threads: int


def use_of(pid: int) -> Use | None:
    """Look at a process; None if it has ended."""
    try:
        found = _ANONYMOUS.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    memory = [_is_memory(entry) for entry in _descriptors(pid)]
    return None if found is None else Use(int(found[1]) * 1024, memory.count(False), memory.count(True), threads)


def killable(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return agents and ranks but those of the mesh that stays: none of its processes is killed."""
    return [
        process for process in processes if not any(map(_is_steady, (process, *_below(process.pid, recursive=False))))
    ]


def _is_steady(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[:1] != [] and process.cmdline()[0].startswith(f"meshrt: {STEADY} rank")
    except psutil.NoSuchProcess:
        return False


def agents_of(root: int) -> list[psutil.Process]:
    """Return the host agents of a program."""
    return [process for process in _below(root, recursive=False) if _name(process) == "meshrt-agent"]


def ranks_of(root: int) -> list[psutil.Process]:
    """Return the ranks of a program: the children of its agents."""
    return [rank for agent in agents_of(root) for rank in _below(agent.pid, recursive=False)]


def segments_of(root: int) -> int:
    """Return the bytes of all memory files that a program's processes have open, each file counted once."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in (root, *(process.pid for process in _below(root, recursive=True))):
        for entry in _descriptors(pid):
            if _is_memory(entry):
                try:
                    status = os.stat(entry)
                except OSError:
                    continue  # closed meanwhile
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def files_below(folder: Path) -> int:
    """Return how many files and directories there are below ``folder``."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def _below(pid: int, *, recursive: bool) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive)
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _is_memory(entry: str) -> bool:
    try:
        return os.readlink(entry).startswith("/memfd:")
    except OSError:
        return True  # closed meanwhile: of no account


def _descriptors(pid: int) -> Iterator[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for number in numbers:
        yield f"/proc/{pid}/fd/{number}"

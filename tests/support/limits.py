"""Limits of this process: memory beyond them is refused, files take no bytes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

__all__ = ["full_disk", "limit", "limited", "no_descriptor_is_free"]


def limit(room: int | None) -> None:
    """Leave this process ``room`` bytes more than it has; None: as many as there are."""
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps counts as used
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard if room is None else used + room, hard))


@contextlib.contextmanager
def limited(room: int) -> Iterator[None]:
    """Leave this process so much in the block."""
    limit(room)
    try:
        yield
    finally:
        limit(None)


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file takes a byte in the block; the error is that of a file that is too long, and comes as late."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def no_descriptor_is_free() -> Iterator[None]:
    """The table of this process is full in the block, up to its highest number."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, before[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)

"""How much memory the store may take: a share of the machine's (or of the control group's), or the user's setting."""

from __future__ import annotations

import os
import re
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.hooks.plugins import SWITCH_VALUES
from meshrt.store.cgroup import memory_groups
from meshrt.transport.reserve import reserve

__all__ = [
    "LIMIT",
    "LOGS_LIMIT",
    "RUNS_LIMIT",
    "SPILL",
    "free_in_group",
    "free_memory",
    "parse_limit",
    "parse_size",
    "size_asked_for",
    "spills",
    "store_limit",
]

#: Environment: ``4GiB``, ``500MB``, ``30%``, or a number of bytes.
LIMIT = "MESHRT_STORE_LIMIT"
#: Environment: ``1`` has `put` write to files in the run directory when memory is refused.
SPILL = "MESHRT_STORE_SPILL"
#: Environment: how large the logs of the ranks of a host agent may become, and what ended programs have left.
LOGS_LIMIT = "MESHRT_LOGS_LIMIT"
RUNS_LIMIT = "MESHRT_RUNS_LIMIT"
_DEFAULT = "30%"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_TEXT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(%|[A-Za-z]*)\s*")
#: More than any machine has.
_MOST = 1 << 60


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as ``4GiB``, ``500 MB`` or ``1000000``; None: it is not a size."""
    match = _TEXT.fullmatch(text)
    factor = _UNITS.get(match[2].upper()) if match else None
    return int(float(match[1]) * factor) if match and factor else None


def parse_limit(text: str, total: int) -> int:
    """Return the bytes that ``text`` means on a host with ``total`` bytes. Raises UsageError."""
    match = _TEXT.fullmatch(text)
    if match and match[2] == "%" and float(match[1]) <= 100:
        return int(total * float(match[1]) / 100)
    size = parse_size(text)
    if size is not None:
        return min(_MOST, size)
    raise UsageError(f"{LIMIT}={text!r}: expected a size such as 4GiB or 500MB, or a share such as 30%")


def size_asked_for(variable: str, default: int) -> int:
    """Return the bytes that an environment variable gives. Raises UsageError."""
    text = os.environ.get(variable)
    size = parse_size(text) if text else default
    if size is None:
        raise UsageError(f"{variable}={text!r}: expected a size such as 4GiB or 500MB")
    return min(_MOST, size)


def store_limit() -> int:
    """Return how many bytes the store of a host may commit."""
    total = min([_meminfo("MemTotal"), *(limit for limit, _ in _limits())])
    return parse_limit(os.environ.get(LIMIT) or _DEFAULT, total)


def spills() -> bool:
    """Return whether objects go to files when memory is refused, unless `put` is told otherwise."""
    return bool(SWITCH_VALUES.get(os.environ.get(SPILL, "")))


def free_memory() -> int:
    """Return how many bytes this host, or the control group that this process is in, has left."""
    return min([_meminfo("MemAvailable"), *free_in_group()])


def free_in_group() -> list[int]:
    """Return the bytes that the control group of this process has left, and those above it, where they have a limit."""
    return [limit - used for limit, used in _limits()]


def _limits() -> list[tuple[int, int]]:
    return [found for group in memory_groups() if (found := group.limit_and_use()) is not None]


def _meminfo(name: str) -> int:
    for line in reserve.run(Path("/proc/meminfo").read_text).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 1 << 62

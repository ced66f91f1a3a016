"""What ranks have printed, as the files of the run directory keep it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from meshrt.errors import UsageError

__all__ = ["line_count", "tails"]

#: Lines that are shown of each rank, and the most bytes that are read for that.
_LINES = 10
_MOST_LINES = 10_000
_BYTES = 64 << 10


def line_count(wanted: object) -> int:
    """Return how many lines of each rank a person wants (0 or nothing: the usual number). Raises UsageError."""
    count = wanted or _LINES
    if type(count) is not int or not 1 <= count <= _MOST_LINES:
        raise UsageError(f"the number of lines is from 1 to {_MOST_LINES}, not {count!r}")
    return count


def tails(files: Mapping[int, Path], count: int) -> dict[int, tuple[str, str]]:
    """Return the last lines of files by rank, each with "", or with why they cannot be read."""
    found = {}
    for rank, path in files.items():
        try:
            found[rank] = _tail(path, count), ""
        except FileNotFoundError:
            found[rank] = "", ""
        except OSError as error:
            found[rank] = "", f"its output cannot be read: {path}: {error.strerror}"
    return found


def _tail(path: Path, count: int) -> str:
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - _BYTES)
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").splitlines()
    if start and len(lines) > 1:
        del lines[0]  # the begin of it is missing
    return "\n".join(lines[-count:])

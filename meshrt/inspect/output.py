"""The output of ranks, as stored in the run directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshrt.errors import UsageError
from meshrt.escapes import latest_state

__all__ = ["Tail", "line_count", "lines_in", "tails"]

#: Lines shown of each rank: the usual and the largest number; and the most bytes that are read for them.
_LINES = 10
_MOST_LINES = 10_000
_BYTES = 64 << 10


def line_count(wanted: object) -> int:
    """Return how many lines of each rank the user wants: an int from 1 to `_MOST_LINES`.

    Args:
        wanted: None: the usual number.
    Raises:
        UsageError: Not such a number.
    """
    count = _LINES if wanted is None else wanted
    if type(count) is not int or not 1 <= count <= _MOST_LINES:
        raise UsageError(f"the number of lines is from 1 to {_MOST_LINES}, not {count!r}")
    return count


@dataclass(frozen=True, slots=True)
class Tail:
    """The last lines of a rank.

    Attributes:
        text: The lines; "" if there is no output.
        problem: Why the file cannot be read; "" if it can.
        inode, end: The file, and the offset of the end of its last whole line; 0 and 0 if there is no file.
    """

    text: str = ""
    problem: str = ""
    inode: int = 0
    end: int = 0

    @property
    def kind(self) -> Literal["answered", "empty", "refused"]:
        """What `JobAnswer.kind` is for this rank; empty: it has printed no whole line."""
        return "refused" if self.problem else "answered" if self.end else "empty"


def lines_in(data: bytes) -> list[str]:
    """Return the complete lines in ``data``; a line that was written over, as a progress bar is, in its last state."""
    return [latest_state(line) for line in data.decode("utf-8", "replace").split("\n")[:-1]]


def tails(files: Mapping[int, Path], count: int) -> dict[int, Tail]:
    """Return the last ``count`` lines of files, by rank, without a last line whose end is not written yet."""
    found = {}
    for rank, path in files.items():
        try:
            found[rank] = _tail(path, count)
        except FileNotFoundError:
            found[rank] = Tail()
        except OSError as error:
            found[rank] = Tail(problem=f"its output cannot be read: {path}: {error.strerror}")
    return found


def _tail(path: Path, count: int) -> Tail:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _BYTES)
        file.seek(start)
        data = file.read()
        inode = os.fstat(file.fileno()).st_ino
    data = data[: data.rfind(b"\n") + 1]
    lines = lines_in(data)
    if start and len(lines) > 1:
        del lines[0]  # its beginning is missing
    return Tail("\n".join(lines[-count:]), inode=inode, end=start + len(data))

"""Follows what ranks print: reads their files as they grow. Equal lines found in one look become one line."""

from __future__ import annotations

import contextlib
import os
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from meshrt.inspect.output import Tail, lines_in

__all__ = ["Follower", "Line"]

#: Bytes of one file that are read in one look, at most.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line, and the ranks (of the mesh or actor ``label``) that have printed it."""

    label: str
    ranks: tuple[int, ...]
    text: str


@dataclass(slots=True)
class _File:
    label: str
    rank: int
    inode: int
    offset: int


class Follower:
    """Follows files that are written in whole lines. A file may be replaced by a new one and kept as ``.log.1``."""

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}

    def add(self, label: str, files: Mapping[int, Path], read: Mapping[int, Tail]) -> None:
        """Follow files, by rank; those that are followed already are ignored.

        Args:
            label: Names their mesh or actor.
            read: How far each file was read already; one that is missing here is followed from its begin.
        """
        for rank, path in files.items():
            tail = read.get(rank, Tail())
            self._files.setdefault(path, _File(label, rank, tail.inode, tail.end))

    @property
    def several(self) -> bool:
        """Whether there are several labels: then a line has to be shown with its own."""
        return len({file.label for file in self._files.values()}) > 1

    def look(self) -> list[Line]:
        """Return the new lines. Ranks that have printed the same line share it; the order of each rank is kept."""
        new: dict[str, dict[int, deque[str]]] = {}
        for path, file in self._files.items():
            lines = _new_lines(path, file)
            if lines:
                new.setdefault(file.label, {})[file.rank] = deque(lines)
        return [line for label, ranks in new.items() for line in _merged(label, ranks)]


def _new_lines(path: Path, file: _File) -> list[str]:
    lines: list[str] = []
    try:
        with open(path, "rb") as stream:
            inode = os.fstat(stream.fileno()).st_ino
            if inode != file.inode:
                lines += _rest_of_old(path, file)
                file.inode, file.offset = inode, 0
            lines += _whole_lines(stream, file)
    except OSError:  # not printed to yet, or removed: there are no new lines
        return lines
    return lines


def _rest_of_old(path: Path, file: _File) -> list[str]:
    lines: list[str] = []
    with contextlib.suppress(OSError), open(path.with_suffix(".log.1"), "rb") as stream:
        if os.fstat(stream.fileno()).st_ino == file.inode:
            while more := _whole_lines(stream, file):
                lines += more
    return lines


def _whole_lines(stream: IO[bytes], file: _File) -> list[str]:
    stream.seek(file.offset)
    data = stream.read(_MOST)
    data = data[: data.rfind(b"\n") + 1]
    file.offset += len(data)
    return lines_in(data)


def _merged(label: str, ranks: dict[int, deque[str]]) -> Iterable[Line]:
    left = {rank: Counter(lines) for rank, lines in ranks.items()}
    #: Number of ranks that still have a line, by its text.
    having = Counter(text for lines in left.values() for text in lines)
    while ranks:
        heads = {rank: ranks[rank][0] for rank in sorted(ranks)}
        reached = Counter(heads.values())
        # A line waits until it is next for all ranks that have it. If no line is, that of the lowest rank comes next.
        text = next((head for head in heads.values() if reached[head] == having[head]), next(iter(heads.values())))
        same = [rank for rank, head in heads.items() if head == text]
        for rank in same:
            left[rank][text] -= 1
            having[text] -= not left[rank][text]
            ranks[rank].popleft()
            if not ranks[rank]:
                del ranks[rank]
        yield Line(label, tuple(same), text)

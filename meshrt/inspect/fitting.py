"""Tables that fit a person's terminal: long texts are cut, and what tells least is left out, and named. Pure.

Whoever reads through a pipe gets everything: `columns` knows no width there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Room", "columns", "fitted"]

_DOTS = "..."
#: Characters that tabulate keeps free beside a head.
_BESIDE = 2


@dataclass(frozen=True, slots=True)
class Room:
    """What may become of a table that is too wide.

    Attributes:
        width: Characters of a line; None: as many as there are.
        drop: Heads of columns that may be left out, what tells least first.
        cut: Heads of columns whose texts may be cut before, to so many characters.
        gap: Characters between two columns, and ...
        frame: ... around all of them.
    """

    width: int | None
    drop: Sequence[str] = ()
    cut: Mapping[str, int] = field(default_factory=dict)
    gap: int = 2
    frame: int = 0


def columns(*, wide: bool = False) -> int | None:
    """Return the width of the terminal that standard output is; None: it is none, or all is wanted."""
    return None if wide or not sys.stdout.isatty() else shutil.get_terminal_size().columns


def fitted(
    heads: Sequence[str], rows: Sequence[Sequence[object]], room: Room
) -> tuple[list[str], list[list[str]], str]:
    """Return heads and rows of a table that fits, and a line that says what was left out ("" if nothing was)."""
    heads, cells = list(heads), [list(map(str, row)) for row in rows]
    if room.width is None or not cells:
        return heads, cells, ""
    limit = room.width - room.frame
    dropped = []
    for head in room.drop:
        if _least_width(heads, cells, room) <= limit:
            break
        if head in heads:
            index = heads.index(head)
            for row in (heads, *cells):
                del row[index]
            dropped.append(head)
    _cut(heads, cells, limit, room)
    return heads, cells, f"left out, as the terminal is narrow: {', '.join(dropped)} (--wide)" if dropped else ""


def _widths(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(heads[index]) + _BESIDE, *(len(row[index]) for row in cells)) for index in range(len(heads))]


def _width(heads: Sequence[str], cells: Sequence[Sequence[str]], gap: int) -> int:
    return sum(_widths(heads, cells)) + gap * (len(heads) - 1)


def _least_width(heads: Sequence[str], cells: Sequence[Sequence[str]], room: Room) -> int:
    """Return how wide a table is whose texts are cut as far as they may be."""
    least = (
        min(width, max(room.cut.get(head, width), len(head) + _BESIDE))
        for head, width in zip(heads, _widths(heads, cells), strict=True)
    )
    return sum(least) + room.gap * (len(heads) - 1)


def _cut(heads: Sequence[str], cells: Sequence[list[str]], limit: int, room: Room) -> None:
    """Cut texts, the widest column first, as far as they may be."""
    for head in sorted(room.cut, key=lambda head: -_widths(heads, cells)[heads.index(head)] if head in heads else 0):
        excess = _width(heads, cells, room.gap) - limit
        if head not in heads or excess <= 0:
            continue
        index = heads.index(head)
        most = max(room.cut[head], len(head) + _BESIDE, _widths(heads, cells)[index] - excess)
        for row in cells:
            if len(row[index]) > most:
                row[index] = row[index][: most - len(_DOTS)] + _DOTS

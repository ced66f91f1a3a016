"""The one way to lay out a table. Pure.

A table fits the user's terminal: long texts take several lines, and the least important columns are left out and named.
Through a pipe the whole table is written: `columns` returns no width there.
"""

from __future__ import annotations

import html
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from meshrt.escapes import escaped_line
from meshrt.show.streams import is_terminal
from meshrt.show.text import broken, width_of, wrapped

__all__ = ["Room", "columns", "fitted", "html_table", "padded", "table", "widths"]

#: Characters around and between columns, of a table without lines and with lines.
_PLAIN, _GRID = (0, 2), (4, 3)
#: Characters that tabulate keeps free beside a head.
_BESIDE = 2
#: Most lines of a text that is wider than its column; the last one is cut if they are too few.
_LINES = 3


@dataclass(frozen=True, slots=True)
class Room:
    """How a table that is too wide may be reduced.

    Attributes:
        width: Characters of a line; None: no limit.
        drop: Heads of columns that may be left out, the least important first.
        wrap: Heads of columns whose texts may be wrapped before that, with the characters of a line.
    """

    width: int | None
    drop: Sequence[str] = ()
    wrap: Mapping[str, int] = field(default_factory=dict)


def columns(*, wide: bool = False) -> int | None:
    """Return the width of the terminal on standard output; None: it is not a terminal, or ``wide`` is set."""
    return None if wide or not is_terminal(sys.stdout) else shutil.get_terminal_size().columns


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    room: Room,
    *,
    right: Collection[str] = (),
    grid: bool = False,
) -> list[str]:
    """Return the lines of a table, safe to show: text of a cell cannot act on a terminal or add a line.

    Args:
        right: Heads of columns that are flush right: numbers.
        grid: Draw lines around the cells.
    """
    from tabulate import tabulate  # start-up: only if a table is shown

    safe = [[escaped_line(str(cell)) for cell in row] for row in rows]
    kept, cells, left_out = fitted(heads, safe, room, grid=grid)
    align = ["right" if head in right else "left" for head in kept] if cells else None
    text = tabulate(cells, headers=kept, tablefmt="grid" if grid else "plain", disable_numparse=True, colalign=align)
    return [*(line.rstrip() for line in text.splitlines()), *(broken(left_out, room.width, "  ") if left_out else [])]


def fitted(
    heads: Sequence[str], rows: Sequence[Sequence[str]], room: Room, *, grid: bool = False
) -> tuple[list[str], list[list[str]], str]:
    """Return heads and rows of a table that fits, and a line that says what was left out ("" if nothing was)."""
    heads, cells = list(heads), [list(row) for row in rows]
    frame, gap = _GRID if grid else _PLAIN
    if room.width is None or not cells:
        return heads, cells, ""
    limit = room.width - frame
    dropped = []
    for head in room.drop:
        if _least_width(heads, cells, room, gap) <= limit:
            break
        if head in heads:
            index = heads.index(head)
            for row in (heads, *cells):
                del row[index]
            dropped.append(head)
    _wrap(heads, cells, limit, room, gap)
    return heads, cells, f"left out, as the terminal is narrow: {', '.join(dropped)} (--wide)" if dropped else ""


def widths(cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column, for a screen that shows single rows of a table."""
    return [max(map(width_of, column)) for column in zip(*cells, strict=True)]


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return ``text`` in ``width`` columns of a terminal, or as it is if it is wider."""
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


def _widths(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    columns = ((width_of(line) for cell in column for line in cell.split("\n")) for column in zip(*cells, strict=True))
    return [max(len(head) + _BESIDE, *column) for head, column in zip(heads, columns, strict=True)]


def _least_width(heads: Sequence[str], cells: Sequence[Sequence[str]], room: Room, gap: int) -> int:
    """Return the width of a table whose texts are wrapped as far as allowed."""
    least = (
        min(width, max(room.wrap.get(head, width), len(head) + _BESIDE))
        for head, width in zip(heads, _widths(heads, cells), strict=True)
    )
    return sum(least) + gap * (len(heads) - 1)


def _wrap(heads: Sequence[str], cells: Sequence[list[str]], limit: int, room: Room, gap: int) -> None:
    """Wrap texts, the widest column first, as far as allowed."""
    for head in sorted(room.wrap, key=lambda head: -_widths(heads, cells)[heads.index(head)] if head in heads else 0):
        widest = _widths(heads, cells)
        excess = sum(widest) + gap * (len(heads) - 1) - limit
        if head not in heads or excess <= 0:
            continue
        index = heads.index(head)
        most = max(room.wrap[head], len(head) + _BESIDE, widest[index] - excess)
        for row in cells:
            row[index] = wrapped(row[index], most, _LINES)


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]], below: str = "") -> str:
    """Return a table for a notebook, with a title, and maybe a line below it. All texts are escaped."""
    from tabulate import tabulate  # start-up: only notebooks need it

    # Texts stay as they are: "1e3" is no number.
    table = tabulate([[str(cell) for cell in row] for row in rows], head, tablefmt="html", disable_numparse=True)
    lines = [f"<p><code>{html.escape(title)}</code></p>", str(table)]
    return "\n".join([*lines, f"<p>{html.escape(below)}</p>"] if below else lines)

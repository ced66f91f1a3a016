"""The columns of ``top``: what each shows of a row, and its sort order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from meshrt.errors import UsageError
from meshrt.escapes import escaped_line
from meshrt.memory.units import amount, change
from meshrt.program.words import RUNNING, WORST_FIRST
from meshrt.selection import near_miss
from meshrt.show.text import since
from meshrt.top.model import Row

__all__ = ["COLUMNS", "Column", "Sorting", "column", "explained", "in_order", "shown_columns"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: Name in options and keys.
        text: Returns the text of a cell, given the row and the time of the look (epoch seconds).
        order: Returns the sort key of a row, of any type that has an order; None: not known, sorted last.
        largest_first: Whether the largest come first, unless the order is reversed.
        help: What it means, for the help of the screen; "": its title says it.
        right: Whether it is flush right: a number.
        wanted: Returns whether the column is shown, given all rows.
    """

    name: str
    title: str
    text: Callable[[Row, float], str]
    order: Callable[[Row], Any]  # Any: types that have an order, and None
    help: str = ""
    largest_first: bool = False
    right: bool = False
    wanted: Callable[[Sequence[Row]], bool] = lambda _rows: True


@dataclass(frozen=True, slots=True)
class Sorting:
    """An order of rows: by the column of this name, or the reverse of it."""

    by: str = "rank"
    reverse: bool = False


def _bytes(value: int | None) -> str:
    return "" if value is None else amount(value)


def _rate(calls: float) -> str:
    return f"{calls:.1f}" if calls < 10 else f"{calls:.0f}"


def _note(row: Row, now: float) -> str:
    parts = [f"at {row.place}" if row.place else "", row.note]
    if row.state != RUNNING and row.since:
        parts.append(f"since {since(row.since, now)}")
    return escaped_line(", ".join(filter(None, parts)).replace("\n", " "))


def _runs(row: Row) -> str:
    if row.actors is None:
        return ""
    several = len(row.actors) > 1
    return " ".join(f"{each.name}." * several + each.endpoint for each in row.actors if each.endpoint)


def _text(
    name: str,
    text: Callable[[Row], str],
    order: Callable[[Row], object] | None = None,
    help: str = "",
    *,
    differing: Callable[[Row], object] | None = None,
) -> Column:
    """Return a column of texts.

    Args:
        order: What rows are ordered by; None: the text.
        differing: Show the column only if this is not the same for all rows.
    """

    def wanted(rows: Sequence[Row]) -> bool:
        return differing is None or len(set(map(differing, rows))) > 1

    return Column(name, name.upper(), lambda row, _: escaped_line(text(row)), order or text, help, wanted=wanted)


def _amount(
    name: str,
    value: Callable[[Row], float | None],
    text: Callable[[Row], str],
    help: str,
    *,
    title: str = "",
    rare: bool = False,
) -> Column:
    """Return a column of numbers, the largest first.

    Args:
        text: Returns the text of a row whose number is known.
        rare: Show the column only if one number is not 0.
    """

    def shown(row: Row, _now: float) -> str:
        return "" if value(row) is None else text(row)

    wanted = (lambda rows: any(map(value, rows))) if rare else (lambda _rows: True)
    return Column(name, title or name.upper(), shown, value, help, largest_first=True, right=True, wanted=wanted)


COLUMNS: tuple[Column, ...] = (
    Column("rank", "RANK", lambda row, _: str(row.rank), lambda row: (row.mesh, row.rank), right=True),
    _text("mesh", lambda row: row.mesh, differing=lambda row: row.mesh_id),
    _text(
        "coords",
        lambda row: ",".join(f"{label}={index}" for label, index in row.coords.items()),
        lambda row: tuple(row.coords.values()),
    ),
    _text("host", lambda row: row.host, differing=lambda row: row.host),
    _text("actor", lambda row: ",".join(row.names), lambda row: row.names or None, differing=lambda row: row.names),
    Column("pid", "PID", lambda row, _: str(row.pid or ""), lambda row: row.pid or None, right=True),
    _text(
        "state",
        lambda row: row.state,
        lambda row: WORST_FIRST.index(row.state),
        "running; blocked: at one instruction, using no processor; stopped: in the debugger; post-mortem: in the "
        "debugger, after an exception; not-answering: stopped by a signal, or C code holds its GIL; dead",
    ),
    _amount(
        "cpu",
        lambda row: row.cpu,
        lambda row: f"{row.cpu:.0f}",
        "of one processor, all threads of the process; its child processes are not counted",
        title="CPU%",
    ),
    _amount("rss", lambda row: row.rss, lambda row: _bytes(row.rss), "resident memory of the process"),
    _amount("swap", lambda row: row.swap, lambda row: _bytes(row.swap), "memory of the process in swap", rare=True),
    _amount(
        "growth",
        lambda row: row.growth,
        lambda row: change(row.growth),
        "of RSS without shared memory, and of STORE, since the rank first appeared here, or since x was pressed",
        rare=True,
    ),
    _amount(
        "store",
        lambda row: row.store,
        lambda row: _bytes(row.store or None),
        "shared memory of its own objects, and of objects of others that it holds",
        rare=True,
    ),
    _amount(
        "gpu", lambda row: row.gpu, lambda row: _bytes(row.gpu), "memory of torch's allocator on devices", rare=True
    ),
    _amount(
        "calls",
        lambda row: row.calls,
        lambda row: _rate(row.calls or 0.0),
        "messages that its actors have begun to serve",
        title="CALLS/S",
    ),
    _amount(
        "queue",
        lambda row: row.queue,
        lambda row: f"{row.queue}{'+' * row.more}",
        "messages that have arrived and wait: read, or, while an endpoint keeps its thread, in the sockets; 5+: or "
        "more. Messages that callers could not send yet are not counted",
    ),
    _text("runs", _runs, lambda row: _runs(row) or None, "the endpoint that runs now"),
    Column(
        "note",
        "NOTE",
        _note,
        lambda row: (row.note or row.place) or None,
        "its place in the code, the reason for its state, and since when",
    ),
)


def column(name: str) -> Column:
    """Return a column by its name. Raises UsageError: there is no such column."""
    for each in COLUMNS:
        if each.name == name:
            return each
    names = [each.name for each in COLUMNS]
    raise UsageError(f"no column {name!r}{near_miss(name, names) or ';'} there are: {', '.join(names)}")


def explained(width: int) -> str:
    """Return what the columns mean, in lines of at most ``width`` characters."""
    blank = " " * (max(len(each.title) for each in COLUMNS) + 2)
    said = (
        wrap(f"{each.title:{len(blank)}}{each.help}", width, subsequent_indent=blank) for each in COLUMNS if each.help
    )
    return "\n".join(line for lines in said for line in lines)


def in_order(rows: Sequence[Row], sorting: Sorting) -> list[Row]:
    """Return rows in order. Values that are not known come last in both directions; equal rows are ordered by rank."""
    by = column(sorting.by)
    known = [row for row in rows if by.order(row) is not None]
    rest = [row for row in rows if by.order(row) is None]
    for part in (known, rest):
        part.sort(key=lambda row: (row.mesh, row.mesh_id, row.rank))
    known.sort(key=by.order, reverse=by.largest_first != sorting.reverse)
    return known + rest


def shown_columns(rows: Sequence[Row], sorting: Sorting) -> list[Column]:
    """Return the columns that these rows need, including the column of the order."""
    return [each for each in COLUMNS if each.name == sorting.by or each.wanted(rows)]

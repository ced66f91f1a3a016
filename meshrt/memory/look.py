"""How a memory view is shown: its options, the order and the number of rows, the folding, and the columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from meshrt.memory.units import amount
from meshrt.show.table import Room, table

__all__ = [
    "GROUPINGS",
    "GROWTHS",
    "ORDERS",
    "Column",
    "Growing",
    "Look",
    "Ordered",
    "alike",
    "clusters",
    "grown",
    "growth_of",
    "largest_first",
    "lines_of",
    "rest",
]

GROUPINGS = ("host", "actor", "type", "dtype", "rank", "callsite")
ORDERS = ("size", "pss", "pid", "rank", "kind", "growth")
#: Orders with the largest first; in the others the smallest come first.
_BY_SIZE = ("size", "pss", "growth")
#: Names of a growth in a document, and at the head of a table: since the earlier look, and since the first one.
GROWTHS = {"growth": "GROWTH", "grown": "IN ALL"}
#: Heads of columns that are flush right.
_NUMBERS = {"PID", "RSS", "PSS", "SHARED", "HEAP", "FREE", "SWAP", "GPU", *GROWTHS.values(), "VARIABLES"}
#: Sizes that are this close count as one: a share, and bytes.
_CLOSE, _CLOSE_BYTES = 0.05, 1 << 20

T = TypeVar("T")


class Growing(Protocol):
    """A row with a growth."""

    @property
    def growth(self) -> int | None: ...

    @property
    def grown(self) -> int | None: ...


class Ordered(Protocol):
    """A sort key."""

    def __lt__(self, other: Any, /) -> bool: ...  # Any: of the same kind


@dataclass(frozen=True, slots=True)
class Look:
    """What a view shows.

    Attributes:
        by: One of `GROUPINGS`, or "".
        sort: One of `ORDERS`.
        reverse: Reverse the order.
        most: Rows of a table, >= 1; the largest are shown. None: all.
        units: One of `meshrt.memory.units.UNITS`.
        totals_only: Show no table.
        ranks: Show the table of ranks beside that of variables.
        addresses: Show the addresses of hosts even if all ranks have the same.
        width: Characters of a line; None: no limit.
    """

    by: str = ""
    sort: str = "size"
    reverse: bool = False
    most: int | None = None
    units: str = "auto"
    totals_only: bool = False
    ranks: bool = True
    addresses: bool = False
    width: int | None = None


def largest_first(rows: Sequence[T], look: Look, keys: Mapping[str, Callable[[T], Ordered]]) -> tuple[list[T], list[T]]:
    """Return the rows to show, in order, and the rows that are left out: never the largest ones.

    Args:
        keys: Sort key of each order; ``"size"`` is required.
    """
    measure = keys.get(look.sort, keys["size"]) if look.sort in _BY_SIZE else keys["size"]
    ranked = sorted(rows, key=measure, reverse=True)
    shown, left_out = (ranked, []) if look.most is None else (ranked[: look.most], ranked[look.most :])
    if look.sort not in _BY_SIZE:
        shown.sort(key=keys.get(look.sort, keys["size"]))
    return (shown[::-1] if look.reverse else shown), left_out


class Column(NamedTuple, Generic[T]):
    """A column of a table.

    Attributes:
        text: Returns the text of a row; None: it has none.
        wanted: Whether the table has the column.
    """

    head: str
    text: Callable[[T], str | None]
    wanted: bool = True


def lines_of(
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    look: Look,
    drop: Sequence[str] = (),
    wrap: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    """Return the lines of a table; ``drop``, ``wrap``: as of `meshrt.show.table.Room`."""
    shown = [column for column in columns if column.wanted]
    cells = [[column.text(row) or "" for column in shown] for row in rows]
    return table([column.head for column in shown], cells, Room(look.width, drop, wrap), right=_NUMBERS)


def rest(count: int, size: int, look: Look, *, exact: bool = True) -> list[str]:
    """Return the line about rows that are left out: how many, and their bytes; none if there are none."""
    return [f"+{count} more, {'' if exact else '>= '}{amount(size, look.units)}"] if count else []


def growth_of(row: Growing, word: str) -> int | None:
    """Return a growth of a row, by its name in `GROWTHS`; None: not known."""
    return row.grown if word == "grown" else row.growth


def grown(row: Growing) -> int:
    """Return the bytes of growth since the first view; 0 if that is not known."""
    return (row.growth or 0) if row.grown is None else row.grown


def alike(rows: Sequence[T], *measures: tuple[Callable[[T], int], int]) -> list[list[T]]:
    """Return groups of rows that are close in each of some measures, as `clusters` does for one.

    Args:
        measures: Functions that return bytes, each with the bytes by which rows may differ.
    """
    groups = [list(rows)]
    for size, least in measures:
        groups = [near for group in groups for near in clusters(group, size, least)]
    return groups


def clusters(rows: Sequence[T], size: Callable[[T], int], least: int = 0) -> list[list[T]]:
    """Return groups of rows with close sizes, the largest group first; a row far from all others is a group of its own.

    Args:
        least: Bytes by which sizes may always differ, also small ones.
    """
    left, found = sorted(rows, key=size), []
    while left:
        middle = size(left[len(left) // 2])
        room = max(_CLOSE * abs(middle), min(_CLOSE_BYTES, abs(middle) / 2), least)
        near = [row for row in left if abs(size(row) - middle) <= room]
        left = [row for row in left if abs(size(row) - middle) > room]
        found.append(near)
    return sorted(found, key=len, reverse=True)

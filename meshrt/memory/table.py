"""The memory view as text: ranks, variables, and totals. A document in (`meshrt.memory.document`), text out."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from meshrt.escapes import escaped_line
from meshrt.memory.devices import device_names, kept_on_devices
from meshrt.memory.document import Document, unmeasured
from meshrt.memory.groups import OF_REFERENCES, Group, grouped, is_exact
from meshrt.memory.look import (
    GROWTHS,
    Column,
    Growing,
    Look,
    Ordered,
    alike,
    grown,
    growth_of,
    largest_first,
    lines_of,
    rest,
)
from meshrt.memory.operations import LeftOut, OfProcess, RankRow, SizeRow, VariableRow
from meshrt.memory.reftable import holding_table, reference_table
from meshrt.memory.totals import totals
from meshrt.memory.units import amount, change, size_text, span
from meshrt.memory.walk import BUDGET
from meshrt.selection import fold_ranks
from meshrt.show.text import cut

__all__ = ["render"]

#: With more ranks than these, ranks that are alike are folded.
_FOLD_ABOVE = 8
_NAMES_MAX = 60
#: Elements of one container that are alike from which on one stands for all; and the end of the name of an element.
_ALIKE = 4
_ELEMENT = re.compile(r"\[[^\[\]]*\]$")
#: Growth by which ranks, and sizes of one variable, may differ and still be alike; bytes.
_RANK_GROWTH, _SMALL_GROWTH = 1 << 20, 64 << 10

#: Columns that a narrow terminal drops, the least important first; and those that are wrapped before, at a width.
_RANK_DROPS = ("FREE", "SHARED", "PINNED", "HEAP", "ADDRESS", "HOST", "PID", "SWAP", "HOLDS", "PSS", "STORE", "ACTOR")
_RANK_WRAPS = {"STATE": 24, "ACTOR": 12, "HOST": 12, "RANK": 16}
_VARIABLE_DROPS = ("ALSO IN", "SHAPE", "TYPE", "ACTOR")
_VARIABLE_WRAPS = {"ALSO IN": 12, "VARIABLE": 30, "TYPE": 16}

#: Measures that must be close for ranks to share a row; and the bytes by which they may differ.
_MEASURES: tuple[tuple[Callable[[RankRow], int], int], ...] = (
    (lambda row: row.rss or 0, 0),
    (lambda row: row.store_own or 0, 0),
    (lambda row: row.store_held or 0, 0),
    (kept_on_devices, 0),
    (grown, _RANK_GROWTH),
)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A row of the table of variables.

    Attributes:
        sizes: Those that it covers, which are close.
        more: How many further elements of the same container it stands for.
    """

    variable: VariableRow
    size: SizeRow
    ranks: Sequence[int]
    sizes: Sequence[SizeRow]
    more: int = 0

    @property
    def growth(self) -> int:
        """The growth since the first view, 0 if it is not known."""
        return max(map(grown, self.sizes))


def render(document: Document, look: Look) -> str:
    """Return the text of a document, safe to show: no name in it can act on a terminal."""
    lines: list[str] = []
    if not look.totals_only:
        if look.by in ("", "rank"):
            tables = [_ranks(document, look)] if look.ranks else []
            tables += [_variables(document, document.variables, look)] if document.variables is not None else []
            tables += [reference_table(document, look)] if document.references is not None else []
            tables += [holding_table(document, look)] if document.holding is not None else []
            lines += [line for table in tables for line in (*table, "")][:-1]
        else:
            lines += _groups(document, look)
        lines.append("")
    return "\n".join([*lines, *map(escaped_line, totals(document, look))])


# -- ranks -------------------------------------------------------------------------------------------------------------


def _ranks(document: Document, look: Look) -> list[str]:
    ranks = document.ranks
    groups: Sequence[Sequence[RankRow]] = (
        _folded(ranks) if len(ranks) > _FOLD_ABOVE and look.by != "rank" else [[row] for row in ranks]
    )
    keys: dict[str, Callable[[Sequence[RankRow]], Ordered]] = {
        "size": lambda rows: max(row.rss or 0 for row in rows),
        "pss": lambda rows: max(row.pss or 0 for row in rows),
        "growth": lambda rows: max(map(grown, rows)),
        "pid": lambda rows: min(row.pid for row in rows),
        "rank": lambda rows: (rows[0].mesh_id, min(row.rank for row in rows)),
        "kind": lambda rows: (rows[0].state, rows[0].rank),
    }
    shown, left_out = largest_first(groups, look, keys)
    columns: list[Column[Sequence[RankRow]]] = [
        Column("RANK", _label),
        Column("MESH", lambda rows: rows[0].mesh or rows[0].mesh_id, len({row.mesh_id for row in ranks}) > 1),
        Column("ACTOR", lambda rows: ",".join(rows[0].actors) or "-"),
        Column("HOST", _hosts),
        Column("ADDRESS", _addresses, look.addresses or len({row.address or "" for row in ranks} - {""}) > 1),
        Column("PID", lambda rows: str(rows[0].pid or "") if len(rows) == 1 else ""),
        Column("RSS", lambda rows: _span([row.rss for row in rows], look)),
        Column("PSS", lambda rows: _span([row.pss for row in rows], look)),
        Column("SHARED", lambda rows: _span([row.shared for row in rows], look)),
        Column("HEAP", lambda rows: _span([row.anonymous for row in rows], look)),
        Column(
            "FREE",
            lambda rows: _span([row.malloc_free for row in rows], look),
            any(row.malloc_free is not None for row in ranks),
        ),
        Column("SWAP", lambda rows: _span([row.swap for row in rows], look), any(row.swap for row in ranks)),
        Column(
            "STORE", lambda rows: _span([row.store_own or 0 for row in rows], look), any(row.store_own for row in ranks)
        ),
        Column(
            "PINNED",
            lambda rows: _span([row.store_pinned or 0 for row in rows], look),
            any(row.store_pinned for row in ranks),
        ),
        Column(
            "HOLDS",
            lambda rows: _span([row.store_held or 0 for row in rows], look),
            any(row.store_held for row in ranks),
        ),
        Column("GPU", lambda rows: _devices(rows, look), any(row.devices for row in ranks)),
        Column("GROWTH", lambda rows: _growth_of(rows, "growth", look), document.since is not None),
        Column("IN ALL", lambda rows: _growth_of(rows, "grown", look), document.since_first is not None),
        Column("STATE", lambda rows: rows[0].state + (f" ({rows[0].note})" if rows[0].note else "")),
    ]
    drop = [name for name in _RANK_DROPS if name != "ADDRESS" or not look.addresses]
    lines = lines_of(columns, shown, look, drop, _RANK_WRAPS)
    others = [row for rows in left_out for row in rows]
    unknown = sum(map(unmeasured, others))
    if others and unknown == len(others):
        return [*lines, f"+{unknown} more"]
    return [*lines, *rest(len(others), sum(row.rss or 0 for row in others), look, exact=not unknown)]


def _folded(rows: Sequence[RankRow]) -> list[list[RankRow]]:
    """Return groups of ranks that are alike; a rank with more memory, or another state, is a group of its own."""
    same: dict[Hashable, list[RankRow]] = {}
    for row in rows:
        key = (row.mesh_id, *row.actors, row.state, row.note, row.growth is None, row.grown is None)
        same.setdefault(key, []).append(row)
    return [group for members in same.values() for group in alike(members, *_MEASURES)]


def _label(rows: Sequence[RankRow]) -> str:
    if len(rows) > 1:
        return f"[{fold_ranks(row.rank for row in rows)}] x{len(rows)}"
    coords = ",".join(f"{label}={index}" for label, index in rows[0].coords.items())
    return f"{rows[0].rank} {coords}"


def _hosts(rows: Sequence[RankRow]) -> str:
    names = list(dict.fromkeys(row.host for row in rows))
    node = rows[0].node or ""
    first = names[0] + (f" ({node})" if len(names) == 1 and node not in ("", names[0]) else "")
    return f"{first} (+{len(names) - 1})" if len(names) > 1 else first


def _growth_of(rows: Sequence[Growing], word: str, look: Look) -> str:
    bound = "" if all(is_exact(row, word) for row in rows) else ">= "
    return bound + _span([growth_of(row, word) for row in rows], look, change, "")


def _addresses(rows: Sequence[RankRow]) -> str:
    found = list(dict.fromkeys(row.address or "?" for row in rows))
    return f"{found[0]} (+{len(found) - 1})" if len(found) > 1 else found[0]


def _span(
    values: Sequence[int | None], look: Look, text: Callable[[int, str], str] = amount, unknown: str = "?"
) -> str:
    """Return the least and the most of the values that are known."""
    known = [value for value in values if value is not None]
    return span(text(min(known), look.units), text(max(known), look.units)) if known else unknown


def _devices(rows: Sequence[RankRow], look: Look) -> str:
    held = [kept_on_devices(row) for row in rows if row.devices]
    return f"{_span(held, look)} {device_names(rows)}" if held else ""


# -- variables ---------------------------------------------------------------------------------------------------------


def _variables(document: Document, variables: Sequence[VariableRow], look: Look) -> list[str]:
    every = look.by == "rank"
    rows = [shown for row in variables for shown in _sizes(row, every=every)]
    rows = rows if every else _without_equal_elements(rows)
    keys: dict[str, Callable[[_Shown], Ordered]] = {
        "size": lambda row: row.size.likely,
        "growth": lambda row: row.growth,
        "pid": lambda row: min(row.ranks),
        "rank": lambda row: min(row.ranks),
        "kind": lambda row: (row.variable.kind, row.variable.type, -row.size.likely),
    }
    shown, left_out = largest_first(rows, look, keys)

    def growth(word: str) -> Column[_Shown]:
        wanted = any(growth_of(row.size, word) is not None for row in rows)
        return Column(GROWTHS[word], lambda row: _growth_of(row.sizes, word, look), wanted)

    several = len({row.variable.actor for row in rows if row.variable.mesh_id}) > 1  # the column of ranks has scripts
    columns: list[Column[_Shown]] = [
        Column("VARIABLE", lambda row: row.variable.where + (f" (+{row.more} alike)" if row.more else "")),
        Column("ACTOR", lambda row: row.variable.actor, several),
        Column("TYPE", lambda row: row.variable.type),
        Column("SHAPE", _shape),
        Column("SIZE", lambda row: size_text(row.size, look.units, max(size.bytes for size in row.sizes))),
        *map(growth, GROWTHS),
        Column("RANKS", lambda row: _who(row, document)),
        Column("ALSO IN", lambda row: _remark(row.size)),
    ]
    lines = lines_of(columns, shown, look, _VARIABLE_DROPS, _VARIABLE_WRAPS)
    beyond = document.variables_left_out or LeftOut(0, 0)
    exact = beyond.exact is not False and all(row.size.exact for row in left_out)
    size = sum(row.size.held for row in left_out) + beyond.bytes
    return [*lines, *rest(len(left_out) + beyond.count, size, look, exact=exact), *_beyond(document, look)]


def _beyond(document: Document, look: Look) -> list[str]:
    """Return the line about the variables that ranks have not listed: the smaller part of their memory."""
    lines = []
    of_all: tuple[tuple[str, Sequence[OfProcess]], ...] = (("rank", document.ranks), ("the script", document.processes))
    for whose, rows in of_all:
        told = [row.variables_left_out for row in rows if row.variables_left_out and row.variables_left_out.count]
        if not told:
            continue
        count = span(*(str(each(beyond.count for beyond in told)) for each in (min, max)))
        size = _span([beyond.bytes for beyond in told], look)
        bound = "" if all(beyond.exact is not False for beyond in told) else ">= "
        those = f"each of {len(told)} ranks" if len(told) > 1 else f"one {whose}" if whose == "rank" else whose
        lines.append(f"+{count} more of {those}, {bound}{size} there: too many for a row each, or not counted in time")
    return lines


def _sizes(row: VariableRow, *, every: bool) -> list[_Shown]:
    """Return the rows of a variable: close sizes as one."""
    if every:
        return [_Shown(row, size, (rank,), (size,)) for size in row.sizes for rank in size.ranks]
    same: dict[Hashable, list[SizeRow]] = {}
    for size in row.sizes:
        growths = (size.growth is None, size.grown is None, size.growth_exact, size.grown_exact)
        shape = None if size.shape is None else tuple(size.shape)
        key = (*growths, size.exact, size.why, shape, size.dtype, size.device, tuple(size.shares))
        same.setdefault(key, []).append(size)
    shown = []
    for members in same.values():
        measures = ((lambda size: size.bytes, 0), (lambda size: size.likely, 0), (grown, _SMALL_GROWTH))
        for near in alike(members, *measures):
            ranks = sorted(rank for size in near for rank in size.ranks)
            shown.append(_Shown(row, min(near, key=lambda size: size.bytes), ranks, near))
    return shown


def _without_equal_elements(rows: Sequence[_Shown]) -> list[_Shown]:
    """Return the rows with many elements of one container as one row, if nothing but their names differs."""
    same: dict[Hashable, list[_Shown]] = {}
    for row in rows:
        variable, size = row.variable, row.size
        element = _ELEMENT.search(variable.where)
        named = variable.where if element is None else variable.where[: element.start()]
        key = (
            *(named, element is None, variable.mesh_id, variable.actor, variable.type, tuple(row.ranks)),
            *(_shape(row), len(row.sizes), size.bytes, size.likely, size.exact, growth_of(size, "growth")),
            *(growth_of(size, "grown"), _remark(size)),
        )
        same.setdefault(key, []).append(row)
    shown: list[_Shown] = []
    for members in same.values():
        if len(members) < _ALIKE:
            shown += members
        else:
            shown.append(replace(members[0], more=len(members) - 1))
    return shown


def _shape(row: _Shown) -> str:
    size = row.size
    if size.shape is not None:
        shape = "x".join(map(str, size.shape)) or "scalar"
        on = f" {size.device}" if size.device not in (None, "cpu") else ""
        return f"{shape} {size.dtype or ''}{on}"
    lengths = [each.length for each in row.sizes if each.length is not None]
    if not lengths:
        return ""
    least, most = min(lengths), max(lengths)
    return f"len {least}" + (f" - {most}" if most > least else "") + (f" {size.dtype}" if size.dtype else "")


def _who(row: _Shown, document: Document) -> str:
    mesh_id, ranks = row.variable.mesh_id, row.ranks
    if not mesh_id:
        return "script"
    names = {each.mesh_id: each.mesh for each in document.ranks}
    mesh = f"{names.get(mesh_id, mesh_id)} " if len(names) > 1 else ""
    same = " same" if len(row.sizes) == 1 else ""
    return f"{mesh}[{fold_ranks(ranks)}] x{len(ranks)}{same}" if len(ranks) > 1 else f"{mesh}{ranks[0]}"


def _remark(size: SizeRow) -> str:
    names = cut(", ".join(size.shares), _NAMES_MAX)
    return names + (f" [{size.why}]" if size.why not in ("", BUDGET) else "")


# -- groups ------------------------------------------------------------------------------------------------------------


def _groups(document: Document, look: Look) -> list[str]:
    rows = grouped(document, look.by)
    keys: dict[str, Callable[[Group], Ordered]] = {
        "size": lambda row: row.size,
        "pss": lambda row: row.pss or 0,
        "growth": grown,
        "kind": lambda row: row.key,
        "rank": lambda row: row.key,
        "pid": lambda row: row.key,
    }
    shown, left_out = largest_first(rows, look, keys)
    size_head = "SIZE" if look.by == OF_REFERENCES else "IN VARIABLES"
    texts: dict[str, Callable[[Group], str | None]] = {
        "ADDRESS": lambda row: row.address,
        "RANKS": lambda row: _number(row.ranks),
        "REFERENCES": lambda row: _number(row.references),
        "IN REFERENCES": lambda row: None if row.stored is None else amount(row.stored, look.units),
        "VARIABLES": lambda row: _number(row.variables),
        "RSS": lambda row: _of_known(row, row.rss, look),
        "PSS": lambda row: _of_known(row, row.pss, look),
        size_head: lambda row: _of_group(row, look),
        "GROWTH": lambda row: _growth_of([row], "growth", look) or None,
        "IN ALL": lambda row: _growth_of([row], "grown", look) or None,
    }
    columns = [Column(head, text, any(text(row) is not None for row in rows)) for head, text in texts.items()]
    lines = lines_of([Column(look.by.upper(), lambda row: row.key), *columns], shown, look)
    return [*lines, *rest(len(left_out), sum(row.size for row in left_out), look)]


def _number(count: int | None) -> str | None:
    return None if count is None else str(count)


def _of_known(row: Group, count: int | None, look: Look) -> str | None:
    return None if count is None else (">= " if row.without_rss else "") + amount(count, look.units)


def _of_group(row: Group, look: Look) -> str | None:
    if row.bytes is None:
        return None
    held = SizeRow(bytes=row.bytes, exact=bool(row.exact), estimate=row.estimate, devices=row.devices or {})
    return size_text(held, look.units)

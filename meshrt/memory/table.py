"""The memory view as text: ranks, variables, and totals. Plain data in (`meshrt.memory.document`), text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from meshrt.escapes import escaped_line
from meshrt.memory.devices import device_names, kept_on_devices
from meshrt.memory.document import Document, unmeasured
from meshrt.memory.groups import OF_REFERENCES, grouped
from meshrt.memory.holdtable import holders_without, holding_table
from meshrt.memory.look import GROWTHS, Look, alike, grown, largest_first
from meshrt.memory.merging import counted
from meshrt.memory.reftable import reference_table
from meshrt.memory.totals import totals
from meshrt.memory.units import amount, change, size_text, span
from meshrt.selection import fold_ranks
from meshrt.show.table import Room, table
from meshrt.show.text import cut

__all__ = ["render"]

#: With more ranks than these, ranks that are alike are folded.
_FOLD_ABOVE = 8
_NAMES_MAX = 60
#: Growth by which ranks, and sizes of one variable, may differ and still be alike; bytes.
_RANK_GROWTH, _SMALL_GROWTH = 1 << 20, 64 << 10

#: Facts that must be equal for sizes of a variable to share a row.
_TOGETHER = ("exact", "why", "shape", "dtype", "device", "with", *(f"{word}_exact" for word in GROWTHS))

#: Columns that are flush right.
_NUMBERS = {"PID", "RSS", "PSS", "SHARED", "HEAP", "FREE", "SWAP", "GPU", *GROWTHS.values(), "VARIABLES"}
#: Columns that a narrow terminal drops, the least important first; and columns that are cut before, to so much.
_RANK_DROPS = ("FREE", "SHARED", "PINNED", "HEAP", "ADDRESS", "HOST", "PID", "SWAP", "HOLDS", "PSS", "STORE", "ACTOR")
_RANK_CUTS = {"STATE": 24, "ACTOR": 12, "HOST": 12, "RANK": 16}
_VARIABLE_DROPS = ("ALSO IN", "SHAPE", "TYPE", "ACTOR")
_VARIABLE_CUTS = {"ALSO IN": 12, "VARIABLE": 30, "TYPE": 16}
_REFERENCE_DROPS = ("AGE s", "KIND", "OWNER")
_REFERENCE_CUTS = {"WRITTEN AT": 20, "HELD BY": 12, "REFERENCE": 12}

Row = Mapping[str, Any]

#: Measures that must be close for ranks to share a row; and the bytes by which they may differ.
_MEASURES: tuple[tuple[Callable[[Row], int], int], ...] = (
    (lambda row: int(row.get("rss", 0)), 0),
    (lambda row: int(row.get("store_own", 0)), 0),
    (lambda row: int(row.get("store_held", 0)), 0),
    (kept_on_devices, 0),
    (grown, _RANK_GROWTH),
)


def render(document: Document, look: Look) -> str:
    """Return the text of a document, safe to show: no name in it can act on a terminal."""
    lines: list[str] = []
    if not look.totals_only:
        if look.by in ("", "rank"):
            tables = [_ranks(document, look)] if look.ranks else []
            tables += [_variables(document, look)] if "variables" in document else []
            tables += [_references(document, look)] if "references" in document else []
            tables += [_holding(document, look)] if "holding" in document else []
            lines += [line for table in tables for line in (*table, "")][:-1]
        else:
            lines += _groups(document, look)
        lines.append("")
    return "\n".join([*lines, *map(escaped_line, totals(document, look))])


# -- ranks -------------------------------------------------------------------------------------------------------------


def _ranks(document: Document, look: Look) -> list[str]:
    fold = len(document["ranks"]) > _FOLD_ABOVE and look.by != "rank"
    groups = _folded(document["ranks"]) if fold else [[row] for row in document["ranks"]]
    keys: dict[str, Callable[[Sequence[Row]], Any]] = {
        "size": lambda rows: max(row.get("rss", 0) for row in rows),
        "pss": lambda rows: max(row.get("pss", 0) for row in rows),
        "growth": lambda rows: max(map(grown, rows)),
        "pid": lambda rows: min(row.get("pid", 0) for row in rows),
        "rank": lambda rows: (rows[0]["mesh_id"], min(row["rank"] for row in rows)),
        "kind": lambda rows: (rows[0]["state"], rows[0]["rank"]),
    }
    shown, left_out = largest_first(groups, look, keys)
    several = len({row["mesh_id"] for row in document["ranks"]}) > 1
    columns: dict[str, Callable[[Sequence[Row]], str]] = {
        "RANK": lambda rows: _label(rows),
        **({"MESH": lambda rows: rows[0]["mesh"] or rows[0]["mesh_id"]} if several else {}),
        "ACTOR": lambda rows: ",".join(rows[0]["actors"]) or "-",
        "HOST": lambda rows: _hosts(rows),
        "ADDRESS": lambda rows: _addresses(rows),
        "PID": lambda rows: str(rows[0]["pid"] or "") if len(rows) == 1 else "",
        "RSS": _span_of("rss", look),
        "PSS": _span_of("pss", look),
        "SHARED": _span_of("shared", look),
        "HEAP": _span_of("anonymous", look),
        "FREE": _span_of("malloc_free", look),
        "SWAP": _span_of("swap", look),
        "STORE": _span_of("store_own", look, 0),
        "PINNED": _span_of("store_pinned", look, 0),
        "HOLDS": _span_of("store_held", look, 0),
        "GPU": lambda rows: _devices(rows, look),
        **{head: _growth_of(word, look) for word, head in GROWTHS.items()},
        "STATE": lambda rows: rows[0]["state"] + (f" ({rows[0]['note']})" if rows[0].get("note") else ""),
    }
    absent = {
        "ADDRESS": not look.addresses and len({row.get("address", "") for row in document["ranks"]} - {""}) < 2,
        "SWAP": not any(row.get("swap") for row in document["ranks"]),
        "STORE": not any(row.get("store_own") for row in document["ranks"]),
        "PINNED": not any(row.get("store_pinned") for row in document["ranks"]),
        "HOLDS": not any(row.get("store_held") for row in document["ranks"]),
        "GPU": not any(row.get("devices") for row in document["ranks"]),
        "GROWTH": "since" not in document,
        "IN ALL": "since_first" not in document,
        "FREE": not any("malloc_free" in row for row in document["ranks"]),
    }
    names = [name for name in columns if not absent.get(name)]
    drop = [name for name in _RANK_DROPS if name != "ADDRESS" or not look.addresses]
    lines = _table(names, [[columns[name](rows) for name in names] for rows in shown], look, drop, _RANK_CUTS)
    rest = [row for rows in left_out for row in rows]
    unknown = sum(map(unmeasured, rest))
    if rest and unknown == len(rest):
        return [*lines, f"+{unknown} more"]
    return [*lines, *_more(len(rest), sum(row.get("rss", 0) for row in rest), look, exact=not unknown)]


def _folded(rows: Sequence[Row]) -> list[list[Row]]:
    """Return groups of ranks that are alike; a rank with more memory, or another state, is a group of its own."""
    same: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        known = [word in row for word in GROWTHS]
        same.setdefault((row["mesh_id"], *row["actors"], row["state"], row.get("note"), *known), []).append(row)
    return [group for members in same.values() for group in alike(members, *_MEASURES)]


def _label(rows: Sequence[Row]) -> str:
    if len(rows) > 1:
        return f"[{fold_ranks(row['rank'] for row in rows)}] x{len(rows)}"
    coords = ",".join(f"{label}={index}" for label, index in rows[0]["coords"].items())
    return f"{rows[0]['rank']} {coords}"


def _hosts(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(row["host"] for row in rows))
    node = rows[0].get("node", "")
    first = names[0] + (f" ({node})" if len(names) == 1 and node not in ("", names[0]) else "")
    return f"{first} (+{len(names) - 1})" if len(names) > 1 else str(first)


def _growth_of(word: str, look: Look) -> Callable[[Sequence[Row]], str]:
    def text(rows: Sequence[Row]) -> str:
        return _bound(rows, word) + _span([row[word] for row in rows if word in row], look, change)

    return text


def _bound(rows: Sequence[Row], word: str) -> str:
    return "" if all(row.get(f"{word}_exact", True) for row in rows) else ">= "


def _addresses(rows: Sequence[Row]) -> str:
    found = list(dict.fromkeys(row.get("address") or "?" for row in rows))
    return f"{found[0]} (+{len(found) - 1})" if len(found) > 1 else str(found[0])


def _span_of(name: str, look: Look, absent: int | None = None) -> Callable[[Sequence[Row]], str]:
    """Return a function that shows a column; ``absent``: the value of a rank that does not have it."""
    return lambda rows: _span(
        [row.get(name, absent) for row in rows if name in row or absent is not None], look, amount
    )


def _span(values: Sequence[int], look: Look, text: Callable[[int, str], str]) -> str:
    if not values:
        return "?" if text is amount else ""
    return span(text(min(values), look.units), text(max(values), look.units))


def _devices(rows: Sequence[Row], look: Look) -> str:
    held = [kept_on_devices(row) for row in rows if row.get("devices")]
    return f"{_span(held, look, amount)} {device_names(rows)}" if held else ""


# -- variables ---------------------------------------------------------------------------------------------------------


def _variables(document: Document, look: Look) -> list[str]:
    every = look.by == "rank"
    flat = [
        {**row, **size, "rank_sets": together}
        for row in document["variables"]
        for size, together in _sizes(row["sizes"], every=every)
    ]
    keys: dict[str, Callable[[Row], Any]] = {
        "size": _weight,
        "growth": lambda row: max(map(grown, row["rank_sets"])),
        "pid": lambda row: min(row["ranks"]),
        "rank": lambda row: min(row["ranks"]),
        "kind": lambda row: (row["kind"], row["type"], -_weight(row)),
    }
    shown, left_out = largest_first(flat, look, keys)
    growths = {head: word for word, head in GROWTHS.items() if any(word in row for row in flat)}
    several = len({row["actor"] for row in flat if row["mesh_id"]}) > 1  # the column of ranks marks the script
    names = ["VARIABLE", *(["ACTOR"] if several else []), "TYPE", "SHAPE", "SIZE", *growths]
    cells = []
    for row in shown:
        texts = {
            "VARIABLE": row["where"],
            "ACTOR": row["actor"],
            "TYPE": row["type"],
            "SHAPE": _shape(row),
            "SIZE": size_text(row, look.units, max(size["bytes"] for size in row["rank_sets"])),
            **{head: _growth_of(word, look)(row["rank_sets"]) for head, word in growths.items()},
        }
        cells.append([*(texts[name] for name in names), _who(row, document), _remark(row)])
    lines = _table([*names, "RANKS", "ALSO IN"], cells, look, _VARIABLE_DROPS, _VARIABLE_CUTS)
    beyond = document["variables_left_out"]
    rest = len(left_out) + beyond["count"]
    exact = beyond.get("exact", True) and all(row["exact"] for row in left_out)
    more = _more(rest, sum(map(counted, left_out)) + beyond["bytes"], look, exact=exact)
    return [*lines, *more, *_beyond(document, look)]


def _beyond(document: Document, look: Look) -> list[str]:
    """Return the line about the variables that ranks have not listed: the smaller part of their memory."""
    lines = []
    for whose, rows in (("rank", document["ranks"]), ("the script", document["processes"])):
        told = [row["variables_left_out"] for row in rows if (row.get("variables_left_out") or {}).get("count")]
        if not told:
            continue
        count = span(*(str(each(beyond["count"] for beyond in told)) for each in (min, max)))
        size = _span([beyond["bytes"] for beyond in told], look, amount)
        bound = "" if all(beyond.get("exact", True) for beyond in told) else ">= "
        those = f"each of {len(told)} ranks" if len(told) > 1 else f"one {whose}" if whose == "rank" else whose
        lines.append(f"+{count} more of {those}, {bound}{size} there: too many, or not counted in time, for a row each")
    return lines


def _sizes(sizes: Sequence[Row], *, every: bool) -> list[tuple[dict[str, Any], list[Row]]]:
    """Return the sizes of a variable to show, close ones as one, each with the sizes that it covers."""
    if every:
        return [({**size, "ranks": [rank]}, [size]) for size in sizes for rank in size["ranks"]]
    same: dict[str, list[Row]] = {}
    for size in sizes:
        known = [word in size for word in GROWTHS]
        same.setdefault(repr([known, *(size.get(word) for word in _TOGETHER)]), []).append(size)
    shown = []
    for members in same.values():
        for near in alike(members, (lambda size: int(size["bytes"]), 0), (grown, _SMALL_GROWTH)):
            ranks = sorted(rank for size in near for rank in size["ranks"])
            shown.append(({**min(near, key=lambda size: int(size["bytes"])), "ranks": ranks}, near))
    return shown


def _weight(row: Row) -> int:
    held = int(max(row["bytes"], row.get("estimate") or 0))
    return held + int(sum((row.get("devices") or {}).values()))


def _shape(row: Row) -> str:
    if "shape" in row:
        size = "x".join(map(str, row["shape"])) or "scalar"
        device = row.get("device", "cpu")
        return f"{size} {row.get('dtype', '')}" + (f" {device}" if device != "cpu" else "")
    lengths = [size["length"] for size in row["rank_sets"] if "length" in size]
    if not lengths:
        return ""
    least, most = min(lengths), max(lengths)
    return f"len {least}" + (f" - {most}" if most > least else "") + (f" {row['dtype']}" if "dtype" in row else "")


def _who(row: Row, document: Document) -> str:
    ranks = row["ranks"]
    if not row["mesh_id"]:
        return "script"
    same = " same" if len(row["rank_sets"]) == 1 else ""
    mesh = ""
    if len({each["mesh_id"] for each in document["ranks"]}) > 1:
        names = {each["mesh_id"]: each["mesh"] for each in document["ranks"]}
        mesh = f"{names.get(row['mesh_id'], row['mesh_id'])} "
    return f"{mesh}[{fold_ranks(ranks)}] x{len(ranks)}{same}" if len(ranks) > 1 else f"{mesh}{ranks[0]}"


def _remark(row: Row) -> str:
    names = cut(", ".join(row.get("with", ())), _NAMES_MAX)
    why = row.get("why", "")
    return names + (f" [{why}]" if why not in ("", "budget") else "")


# -- groups ------------------------------------------------------------------------------------------------------------


def _references(document: Document, look: Look) -> list[str]:
    heads, cells, count, size = reference_table(document, look)
    return [*_table(heads, cells, look, _REFERENCE_DROPS, _REFERENCE_CUTS), *_more(count, size, look)]


def _holding(document: Document, look: Look) -> list[str]:
    heads, cells = holding_table(document)
    return [
        *(_table(heads, cells, look, ("TYPE",), {"VARIABLE": 24, "TYPE": 12}) if cells else []),
        *map(escaped_line, holders_without(document)),
    ]


def _groups(document: Document, look: Look) -> list[str]:
    rows = grouped(document, look.by)
    keys: dict[str, Callable[[Row], Any]] = {
        "size": lambda row: row.get("rss", row.get("bytes", 0)),
        "pss": lambda row: row.get("pss", 0),
        "growth": grown,
        "kind": lambda row: row["key"],
        "rank": lambda row: row["key"],
        "pid": lambda row: row["key"],
    }
    shown, left_out = largest_first(rows, look, keys)
    names = [
        name
        for name in ("address", "ranks", "references", "stored", "variables", "rss", "pss", "bytes", *GROWTHS)
        if any(name in row for row in rows)
    ]
    cells = [[row["key"], *(_group_cell(row, name, look) for name in names)] for row in shown]
    heads = {"bytes": "SIZE" if look.by == OF_REFERENCES else "IN VARIABLES", "stored": "IN REFERENCES", **GROWTHS}
    lines = _table([look.by.upper(), *(heads.get(name, name.upper()) for name in names)], cells, look)
    return [*lines, *_more(len(left_out), sum(map(keys["size"], left_out)), look)]


def _group_cell(row: Row, name: str, look: Look) -> str:
    if name not in row:
        return ""
    if name in ("address", "ranks", "references", "variables"):
        return str(row[name])
    if name == "bytes":
        return size_text({"bytes": row["bytes"], "exact": row["exact"], "devices": row.get("devices")}, look.units)
    if name in GROWTHS:
        return _bound([row], name) + change(row[name], look.units)
    bound = ">= " if row.get("without_rss") and name in ("rss", "pss") else ""
    return bound + amount(row[name], look.units)


def _more(count: int, size: int, look: Look, *, exact: bool = True) -> list[str]:
    return [f"+{count} more, {'' if exact else '>= '}{amount(size, look.units)}"] if count else []


def _table(
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    look: Look,
    drop: Sequence[str] = (),
    cut: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    return table(heads, cells, Room(look.width, drop, cut), right=_NUMBERS)

"""Ranks and variables added up: by host, actor, type of the variable, dtype of the array, or rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshrt.errors import UsageError
from meshrt.memory.document import Document, entries, unmeasured
from meshrt.memory.look import GROWTHS

__all__ = ["OF_REFERENCES", "OF_VARIABLES", "grouped"]

#: Groupings that are of variables only.
OF_VARIABLES = ("type", "dtype")
#: ... of references only.
OF_REFERENCES = "callsite"


def grouped(document: Document, by: str) -> list[dict[str, Any]]:
    """Return the groups, the largest first.

    Each is ``{"key", "ranks" (how many), "without_rss" (of how many of them that is not known), "rss", "pss",
    "growth"}``, of a host also ``"address"``, and, if there are variables, ``{"variables" (how many), "bytes", "exact",
    "devices"}``; by type or dtype it is the latter only. Bytes are those of all ranks, summed over variables.

    Raises:
        UsageError: By type or dtype, where variables were not asked for.
    """
    if by == OF_REFERENCES:
        return _by_site(document)
    if by in OF_VARIABLES and "variables" not in document:
        raise UsageError(f"a grouping by {by} is of variables; expected them to be asked for (--vars)")
    rows: dict[str, dict[str, Any]] = {}
    keys = {(row["mesh_id"], row["rank"]): _key(row, by) for row in document["ranks"]}
    if by not in OF_VARIABLES:
        for row in document["ranks"]:
            group = rows.setdefault(_key(row, by), {"ranks": 0})
            group["ranks"] += 1
            if by == "host" and row.get("address"):
                group["address"] = row["address"]
            if unmeasured(row):
                group["without_rss"] = group.get("without_rss", 0) + 1
            for name in ("rss", "pss", *GROWTHS):
                if name in row:
                    group[name] = group.get(name, 0) + row[name]
    names: dict[str, set[tuple[str, ...]]] = {}
    for entry in entries(document.get("variables", ())):
        if by in OF_VARIABLES:
            key = str(entry.get(by) or "-")
        else:
            key = entry["actor"] if by == "actor" else keys.get((entry["mesh_id"], entry["rank"]), "script")
        group = rows.setdefault(key, {})
        names.setdefault(key, set()).add((entry["mesh_id"], entry["actor"], entry["where"]))
        group["bytes"] = group.get("bytes", 0) + entry["bytes"]
        group["exact"] = group.get("exact", True) and entry["exact"]
        for device, count in (entry.get("devices") or {}).items():
            devices = group.setdefault("devices", {})
            devices[device] = devices.get(device, 0) + count
        if by in OF_VARIABLES:
            _add_growths(group, entry)
    found = [
        {"key": key, **group, **({"variables": len(names[key])} if key in names else {})} for key, group in rows.items()
    ]
    return sorted(found, key=lambda group: (-group.get("rss", group.get("bytes", 0)), group["key"]))


def _by_site(document: Document) -> list[dict[str, Any]]:
    if "references" not in document:
        raise UsageError("a grouping by callsite is of references; expected them to be asked for (--refs)")
    sums: dict[str, dict[str, Any]] = {}
    for row in document["references"]:
        group = sums.setdefault(_site(row), {"references": 0, "bytes": 0, "exact": True})
        group["references"] += row["count"]
        group["bytes"] += row["count"] * row["size"]
        _add_growths(group, row)
    for row in document.get("references_ended", ()):
        _add_growths(sums.setdefault(_site(row), {"references": 0, "bytes": 0, "exact": True}), row)
    return sorted(({"key": key, **group} for key, group in sums.items()), key=lambda group: -group["bytes"])


def _add_growths(group: dict[str, Any], row: Mapping[str, Any]) -> None:
    for word in GROWTHS:
        if word in row:
            group[word] = group.get(word, 0) + row[word]
        exact = f"{word}_exact"
        if not row.get(exact, True):
            group[exact] = False


def _site(row: Mapping[str, Any]) -> str:
    return str(row["site"] or row["kind"])


def _key(row: dict[str, Any], by: str) -> str:
    if by == "host":
        return str(row["host"])
    if by == "actor":
        return ",".join(row["actors"]) or "-"
    return f"{row['mesh']} {row['rank']}"

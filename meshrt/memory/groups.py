"""Ranks and variables added up: by host, actor, type of the variable, dtype of the array, or rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshrt.errors import UsageError
from meshrt.memory.document import Document, entries, unmeasured
from meshrt.memory.look import GROWTHS

__all__ = ["OF_REFERENCES", "OF_VARIABLES", "grouped"]

#: Groupings that apply to variables only.
OF_VARIABLES = ("type", "dtype")
#: ... to references only.
OF_REFERENCES = "callsite"


def grouped(document: Document, by: str) -> list[dict[str, Any]]:
    """Return the groups, the largest first.

    Each is ``{"key", "ranks" (count), "without_rss" (count of ranks whose RSS is not known), "rss", "pss",
    "growth"}``. A host also has ``"address"``. With variables there are also ``{"variables" (count), "bytes", "exact",
    "devices"}``; by type or dtype there are only these. Bytes are those of all ranks, summed over variables. With
    references there are ``{"references" (count), "stored" (bytes, each once)}``: those of a host, or those that ranks
    of an actor have put.

    Raises:
        UsageError: ``by`` is type or dtype, and the document has no variables.
    """
    if by == OF_REFERENCES:
        return _by_site(document)
    if by in OF_VARIABLES and "variables" not in document:
        raise UsageError(f"a grouping by {by} is of variables; expected them to be asked for (--vars)")
    rows: dict[str, dict[str, Any]] = {}
    #: The rows whose growth is the growth of a group.
    members: dict[str, list[Mapping[str, Any]]] = {}
    keys = {(row["mesh_id"], row["rank"]): _key(row, by) for row in document["ranks"]}
    if by not in OF_VARIABLES:
        for row in document["ranks"]:
            group = rows.setdefault(_key(row, by), {"ranks": 0})
            group["ranks"] += 1
            if by == "host" and row.get("address"):
                group["address"] = row["address"]
            if unmeasured(row):
                group["without_rss"] = group.get("without_rss", 0) + 1
            for name in ("rss", "pss"):
                if name in row:
                    group[name] = group.get(name, 0) + row[name]
            if row["state"] != "dead":
                members.setdefault(_key(row, by), []).append(row)
        for key, references in _references(document, by, keys).items():
            rows.setdefault(key, {}).update(references)
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
            members.setdefault(key, []).append(entry)
    found = [
        {
            "key": key,
            **group,
            **_growths(members.get(key, ())),
            **({"variables": len(names[key])} if key in names else {}),
        }
        for key, group in rows.items()
    ]
    return sorted(found, key=lambda group: (-group.get("rss", group.get("bytes", 0)), group["key"]))


def _references(document: Document, by: str, keys: Mapping[tuple[str, int], str]) -> dict[str, dict[str, int]]:
    """Return the number of references in each group, and their bytes.

    Args:
        keys: The group of each rank.
    """
    owners = {row["pid"]: keys[row["mesh_id"], row["rank"]] for row in document["ranks"]}
    owners.update((row["pid"], row["kind"]) for row in document["processes"])
    found: dict[str, dict[str, int]] = {}
    for row in document.get("references", ()):
        key = str(row["host"]) if by == "host" else owners.get(row["owner"], "-")
        group = found.setdefault(key, {"references": 0, "stored": 0})
        group["references"] += row["count"]
        group["stored"] += row["count"] * row["size"]
    return found


def _by_site(document: Document) -> list[dict[str, Any]]:
    if "references" not in document:
        raise UsageError("a grouping by callsite is of references; expected them to be asked for (--refs)")
    sums: dict[str, dict[str, Any]] = {}
    members: dict[str, list[Mapping[str, Any]]] = {}
    for row in document["references"]:
        group = sums.setdefault(_site(row), {"references": 0, "bytes": 0, "exact": True})
        group["references"] += row["count"]
        group["bytes"] += row["count"] * row["size"]
        members.setdefault(_site(row), []).append(row)
    for row in document.get("references_ended", ()):
        sums.setdefault(_site(row), {"references": 0, "bytes": 0, "exact": True})
        members.setdefault(_site(row), []).append(row)
    found = [{"key": key, **group, **_growths(members[key])} for key, group in sums.items()]
    return sorted(found, key=lambda group: -group["bytes"])


def _growths(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of the growths of rows: a lower bound if the growth of some is a bound or is not known.

    A lower bound of 0 is left out, as for one row.
    """
    found: dict[str, Any] = {}
    for word in GROWTHS:
        known = [row[word] for row in rows if word in row]
        exact = len(known) == len(rows) and all(row.get(f"{word}_exact", True) for row in rows)
        if known and (exact or sum(known) > 0):
            found.update({word: sum(known)} if exact else {word: sum(known), f"{word}_exact": False})
    return found


def _site(row: Mapping[str, Any]) -> str:
    return str(row["site"] or row["kind"])


def _key(row: dict[str, Any], by: str) -> str:
    if by == "host":
        return str(row["host"])
    if by == "actor":
        return ",".join(row["actors"]) or "-"
    return f"{row['mesh']} {row['rank']}"

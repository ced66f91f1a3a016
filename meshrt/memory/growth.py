"""What has grown since an earlier document: of ranks, and of their variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshrt.memory.document import NAME, Document, entries, folded, totals_of

__all__ = ["add_growth"]


def add_growth(document: Document, before: Document) -> Document:
    """Return a document with ``"growth"``, in bytes, in its ranks and variables.

    A rank is known by its mesh, or, where that is of another run, by the name of that; a variable by its name and type.
    One that was not there has grown by all it is, if its rank has told then. Of a variable, both sizes have to be known
    exactly, or to be estimated; otherwise its growth is not known. What is no more is told in ``"ended"``, by name.
    """
    same_run = document["run_id"] == before["run_id"]
    old_ranks = {_address(row, same_run): row for row in before["ranks"]}
    names = {row["mesh_id"]: row["mesh"] for document_ in (document, before) for row in document_["ranks"]}
    ranks = []
    for row in document["ranks"]:
        old = old_ranks.get(_address(row, same_run))
        grown = _weight(row) - _weight(old) if old is not None and "rss" in row and "rss" in old else None
        ranks.append({**row, **({"growth": grown} if grown is not None else {})})
    found: Document = {**document, "ranks": ranks, "since": before["time"]}
    if "variables" in document and "variables" in before:

        def key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
            mesh = entry["mesh_id"] if same_run else names.get(entry["mesh_id"], "")
            return (mesh, entry["rank"], *(entry[word] for word in NAME if word != "mesh_id"))

        told = {_address(row, same_run) for row in before["ranks"] if "unique" in row}
        old_sizes = {key(entry): entry for entry in entries(before["variables"])}
        current = []
        for entry in entries(document["variables"]):
            known = key(entry)
            growth = _grown(entry, old_sizes.pop(known, None)) if known[:2] in told else None
            current.append({**entry, **({"growth": growth} if growth is not None else {})})
        found["variables"] = folded(current)
        found["ended"] = sorted({entry["where"] for entry in old_sizes.values() if entry["bytes"] > 1024})
    found["totals"] = {**totals_of(found), "growth": sum(row.get("growth", 0) for row in ranks)}
    return found


def _weight(row: Mapping[str, Any]) -> int:
    """Return what a rank is to blame for: every page of shared memory that it has looked at is in its RSS, too."""
    return int(row["rss"] - row.get("shmem", 0) + row.get("store_own", 0) + row.get("store_held", 0))


def _address(row: Mapping[str, Any], same_run: bool) -> tuple[str, int]:
    return row["mesh_id"] if same_run else row["mesh"], row["rank"]


def _held(entry: Mapping[str, Any]) -> int:
    return int(entry["bytes"] + sum((entry.get("devices") or {}).values()))


def _grown(entry: Mapping[str, Any], old: Mapping[str, Any] | None) -> int | None:
    if old is None:
        return _held(entry)
    if entry["exact"] and old["exact"]:
        return _held(entry) - _held(old)
    if entry.get("estimate") and old.get("estimate"):
        return int(entry["estimate"] - old["estimate"])
    return None

"""The table of what holds a reference: rank, actor and variable; and who holds it otherwise."""

from __future__ import annotations

from typing import Any

from meshrt.memory.document import Document
from meshrt.memory.reftable import holder_names, named, with_hosts
from meshrt.selection import fold_ranks

__all__ = ["holders_without", "holding_table"]

_NAMES = 3


def holding_table(document: Document) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: what was found to hold references."""
    meshes = {row["mesh_id"]: row["mesh"] for row in document["ranks"]}
    several = len(meshes) > 1
    cells = [
        [
            (f"{meshes.get(row['mesh_id'], row['mesh_id'])} " if several else "") + fold_ranks(row["ranks"])
            if row["mesh_id"]
            else "script",
            row["actor"],
            row["where"],
            row["type"],
            ", ".join(row["references"][:_NAMES]) + (f" and {row['count'] - _NAMES} more" * (row["count"] > _NAMES)),
        ]
        for row in document["holding"]
    ]
    return ["HELD BY RANK", "ACTOR", "VARIABLE", "TYPE", "REFERENCE"], cells


def holders_without(document: Document) -> list[str]:
    """Return lines about those who hold a reference in none of the variables that were found, and why that may be."""
    found = {(row["mesh_id"], rank) for row in document["holding"] for rank in row["ranks"]}
    known: dict[int, Any] = {row["pid"]: row for row in document["ranks"]}
    counted = "" if document["holding_exact"] else " that was counted (--exact counts all)"
    nowhere = f"in no variable{counted}: a local of an endpoint or of the script, or on its way"
    script = next((row["pid"] for row in document["processes"] if row["kind"] == "script"), 0)
    reasons: dict[str, list[int]] = {}
    lines = []
    names = holder_names(document)
    for row in document["references"]:
        others = [pid for pid, _ in row["holders"] if pid < 0]
        if others:
            lines.append(f"{named(others, with_hosts(row, document, names))}: for ranks there, which are named above")
    for pid in dict.fromkeys(pid for row in document["references"] for pid, _ in row["holders"] if pid >= 0):
        rank = known.get(pid)
        if rank is None:
            if pid == script and ("", -1) in found:
                continue
            reasons.setdefault(nowhere if pid == script else "of a host agent: for other ranks", []).append(pid)
        elif (rank["mesh_id"], rank["rank"]) not in found:
            silent = rank["state"] in ("dead", "not-answering")
            reasons.setdefault((rank.get("note") or rank["state"]) if silent else nowhere, []).append(pid)
    return [*dict.fromkeys(lines), *(f"{named(pids, names)}: {why}" for why, pids in reasons.items())]

"""The table of the holders of references: rank, actor and variable; and holders without such a variable."""

from __future__ import annotations

from meshrt.memory.document import Document
from meshrt.memory.reftable import holder_names, named, with_hosts
from meshrt.selection import fold_ranks

__all__ = ["holders_without", "holding_table"]

_NAMES = 3


def holding_table(document: Document) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: the variables that hold references."""
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
    """Return lines about processes that hold a reference in no variable that was found, with the probable reason."""
    found = {(row["mesh_id"], rank) for row in document["holding"] for rank in row["ranks"]}
    counted = "" if document["holding_exact"] else " that was counted (--exact counts all)"
    nowhere = f"in no variable{counted}: a local of an endpoint or of the script, or on its way"
    unchosen = "not asked, as others were chosen"
    why = {int(pid): unchosen for pid in document["holders"]}
    asked = {}
    for row in document["ranks"]:
        asked[row["pid"]] = (row["mesh_id"], row["rank"])
        silent = row["state"] in ("dead", "not-answering")
        why[row["pid"]] = (row.get("note") or row["state"]) if silent else nowhere
    for row in document["processes"]:
        if row["kind"] == "script":
            asked[row["pid"]] = ("", -1)
            why[row["pid"]] = unchosen if document.get("chosen") else nowhere
        else:
            why[row["pid"]] = "of a host agent: for other ranks"
    reasons: dict[str, list[int]] = {}
    lines = []
    names = holder_names(document)
    for row in document["references"]:
        others = [pid for pid, _ in row["holders"] if pid < 0]
        if others:
            lines.append(f"{named(others, with_hosts(row, document, names))}: for ranks there, which are named above")
    for pid in dict.fromkeys(pid for row in document["references"] for pid, _ in row["holders"] if pid >= 0):
        if asked.get(pid) not in found:
            reasons.setdefault(why.get(pid, "of no rank that runs now"), []).append(pid)
    return [*dict.fromkeys(lines), *(f"{named(pids, names)}: {text}" for text, pids in reasons.items())]

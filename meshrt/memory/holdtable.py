"""The table of the holders of references: rank, actor and variable; and holders without such a variable."""

from __future__ import annotations

from meshrt.memory.document import Document
from meshrt.memory.reftable import holder_names, named, with_hosts
from meshrt.selection import fold_ranks

__all__ = ["holders_without", "holding_table"]

_NAMES = 3


def holding_table(document: Document) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: the variables that hold references."""
    meshes = {row.mesh_id: row.mesh for row in document.ranks}
    several = len(meshes) > 1
    cells = [
        [
            (f"{meshes.get(row.mesh_id, row.mesh_id)} " if several else "") + fold_ranks(row.ranks)
            if row.mesh_id
            else "script",
            row.actor,
            row.where,
            row.type,
            ", ".join(row.references[:_NAMES]) + (f" and {row.count - _NAMES} more" * (row.count > _NAMES)),
        ]
        for row in document.holding or ()
    ]
    return ["HELD BY RANK", "ACTOR", "VARIABLE", "TYPE", "REFERENCE"], cells


def holders_without(document: Document) -> list[str]:
    """Return lines about processes that hold a reference in no variable that was found, with the probable reason."""
    found = {(row.mesh_id, rank) for row in document.holding or () for rank in row.ranks}
    counted = "" if document.holding_exact else " that was counted (--exact counts all)"
    nowhere = f"in no variable{counted}: a local of an endpoint or of the script, or on its way"
    unchosen = "not asked, as others were chosen"
    why = {int(pid): unchosen for pid in document.holders}
    asked = {}
    for rank in document.ranks:
        asked[rank.pid] = (rank.mesh_id, rank.rank)
        silent = rank.state in ("dead", "not-answering")
        why[rank.pid] = (rank.note or rank.state) if silent else nowhere
    for process in document.processes:
        if process.kind == "script":
            asked[process.pid] = ("", -1)
            why[process.pid] = unchosen if document.chosen else nowhere
        else:
            why[process.pid] = "of a host agent: for other ranks"
    reasons: dict[str, list[int]] = {}
    lines = []
    names = holder_names(document)
    references = document.references or ()
    for row in references:
        others = [pid for pid, _ in row.holders if pid < 0]
        if others:
            lines.append(f"{named(others, with_hosts(row, document, names))}: for ranks there, which are named above")
    for pid in dict.fromkeys(pid for row in references for pid, _ in row.holders if pid >= 0):
        if asked.get(pid) not in found:
            reasons.setdefault(why.get(pid, "of no rank that runs now"), []).append(pid)
    return [*dict.fromkeys(lines), *(f"{named(pids, names)}: {text}" for text, pids in reasons.items())]

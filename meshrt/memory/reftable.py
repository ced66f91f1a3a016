"""The tables of references of the memory view: the objects in shared memory, their holders, and what holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from meshrt.escapes import escaped_line
from meshrt.hooks.measured import ReferenceRow
from meshrt.memory.document import Document
from meshrt.memory.look import GROWTHS, Column, Look, Ordered, grown, growth_of, largest_first, lines_of, rest
from meshrt.memory.operations import HoldingRow, LeftOut
from meshrt.memory.units import amount, change
from meshrt.selection import counted, fold_ranks
from meshrt.show.text import cut

__all__ = ["holders_without", "holding_table", "reference_table", "store_totals"]

#: Characters of a call site; and of columns of a narrow terminal.
_SITE_MAX = 70
_WRAPS = {"WRITTEN AT": 20, "HELD BY": 12, "REFERENCE": 12}
#: References that are named for one variable.
_NAMES = 3


def reference_table(document: Document, look: Look) -> list[str]:
    """Return the lines of the table of references."""
    references = document.references or ()
    keys: dict[str, Callable[[ReferenceRow], Ordered]] = {
        "size": _size,
        "kind": lambda row: (row.kind, row.site),
        "pid": lambda row: row.owner,
        "rank": lambda row: row.owner,
        "growth": grown,
    }
    shown, left_out = largest_first(references, look, keys)
    names = _holder_names(document)

    def growth(word: str) -> Column[ReferenceRow]:
        wanted = any(growth_of(row, word) is not None for row in references)
        return Column(GROWTHS[word], lambda row: change(growth_of(row, word), look.units), wanted)

    columns: list[Column[ReferenceRow]] = [
        Column("REFERENCE", lambda row: row.names[0] + (f" x{row.count}" if row.count > 1 else "")),
        Column("KIND", lambda row: row.kind + (" (file)" if row.disk else "")),
        Column("SIZE", lambda row: amount(row.size, look.units) + (" each" if row.count > 1 else "")),
        *map(growth, GROWTHS),
        Column("OWNER", lambda row: _named([row.owner], names)),
        Column("HELD BY", lambda row: _named([pid for pid, _ in row.holders], _with_hosts(row, document, names))),
        Column("AGE s", lambda row: f"{row.age:.0f}"),
        Column("WRITTEN AT", lambda row: cut(row.site, _SITE_MAX, begin=True)),
    ]
    beyond = document.references_left_out or LeftOut(0, 0)
    count = sum(row.count for row in left_out) + beyond.count
    lines = lines_of(columns, shown, look, ("AGE s", "KIND", "OWNER"), _WRAPS)
    return [*lines, *rest(count, sum(map(_size, left_out)) + beyond.bytes, look)]


def _size(row: ReferenceRow) -> int:
    return row.size * row.count


def _holder_names(document: Document) -> dict[int, tuple[str, int]]:
    """Return mesh and rank by pid; for a process that is not a rank, its kind and -1."""
    known = document.holders
    several = len({mesh for mesh, _ in known.values()}) > 1
    names = {each.pid: (each.kind, -1) for each in document.processes}
    for pid, (mesh, rank) in known.items():
        names[int(pid)] = (mesh if several else "", rank)
    return names


def _with_hosts(
    row: ReferenceRow, document: Document, names: Mapping[int, tuple[str, int]]
) -> dict[int, tuple[str, int]]:
    """Return ``names`` with those of other machines that hold a reference, as far as they are known.

    The store of the owner knows machines by number only. Machines that have fetched the reference have their own row.
    """
    others = [pid for pid, _ in row.holders if pid < 0]
    hosts = sorted({
        other.host
        for other in document.references or ()
        if other.host != row.host and set(other.names) & set(row.names)
    })  # fmt: skip
    known = zip(others, hosts, strict=True) if len(others) == len(hosts) else ()
    return {**names, **{pid: (f"host {host}", -1) for pid, host in known}}


def _named(pids: Iterable[int], names: Mapping[int, tuple[str, int]]) -> str:
    """Return the names of processes, with ranks folded: ``"script, 0-15"``."""
    ranks: dict[str, list[int]] = {}
    texts = []
    for pid in pids:
        mesh, rank = names.get(pid, (f"pid {pid}" if pid > 0 else "another machine", -1))
        if rank < 0:
            texts.append(mesh)
        else:
            ranks.setdefault(mesh, []).append(rank)
    texts += [f"{mesh}: {fold_ranks(found)}" if mesh else fold_ranks(found) for mesh, found in ranks.items()]
    return ", ".join(texts) or "none yet"


def store_totals(document: Document, look: Look) -> list[str]:
    """Return the lines of the sums: one for each store that is not empty."""
    lines = []
    for store in document.stores:
        in_files = store.files or 0  # a view of an earlier version does not contain it
        if not store.committed and not in_files:
            continue
        line = f"shared memory of {store.host}: {amount(store.committed, look.units)} used of "
        line += f"{amount(store.limit, look.units)} (MESHRT_STORE_LIMIT)"
        line += f", and {amount(in_files, look.units)} in files" if in_files else ""
        fetched = store.fetched
        if fetched.count:
            line += f"; {amount(fetched.bytes, look.units)} fetched from other machines (objects: {fetched.count})"
        rows = [row for row in document.references or () if row.host == store.host]
        if rows:
            unique = sum(map(_size, rows))
            total = sum(_size(row) * len(row.holders) for row in rows)
            references = counted(sum(row.count for row in rows), "reference")
            line += f"; {references}: {amount(unique, look.units)}, each byte once "
            line += f"({amount(total, look.units)} summed over holders)"
        lines.append(line)
    return lines


def holding_table(document: Document, look: Look) -> list[str]:
    """Return the lines about what holds references: variables, and processes without such a variable."""
    meshes = {row.mesh_id: row.mesh for row in document.ranks}

    def who(row: HoldingRow) -> str:
        mesh = f"{meshes.get(row.mesh_id, row.mesh_id)} " if len(meshes) > 1 else ""
        return mesh + fold_ranks(row.ranks) if row.mesh_id else "script"

    def names(row: HoldingRow) -> str:
        return ", ".join(row.references[:_NAMES]) + f" and {row.count - _NAMES} more" * (row.count > _NAMES)

    columns: list[Column[HoldingRow]] = [
        Column("HELD BY RANK", who),
        Column("ACTOR", lambda row: row.actor),
        Column("VARIABLE", lambda row: row.where),
        Column("TYPE", lambda row: row.type),
        Column("REFERENCE", names),
    ]
    rows = document.holding or ()
    lines = lines_of(columns, rows, look, ("TYPE",), {"VARIABLE": 24, "TYPE": 12}) if rows else []
    return [*lines, *map(escaped_line, holders_without(document))]


def holders_without(document: Document) -> list[str]:
    """Return lines about processes that hold a reference in no variable that was found, with the probable reason."""
    found = {(row.mesh_id, rank) for row in document.holding or () for rank in row.ranks}
    counted = "" if document.holding_exact else " that was counted (--exact counts all)"
    nowhere = f"in no variable{counted}: in a local variable of an endpoint or of the script, or in transit"
    unchosen = "not asked: not in the selection"
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
            why[process.pid] = "held by a host agent, for other ranks"
    reasons: dict[str, list[int]] = {}
    lines = []
    names = _holder_names(document)
    references = document.references or ()
    for row in references:
        others = [pid for pid, _ in row.holders if pid < 0]
        if others:
            lines.append(f"{_named(others, _with_hosts(row, document, names))}: held for ranks there (see above)")
    for pid in dict.fromkeys(pid for row in references for pid, _ in row.holders if pid >= 0):
        if asked.get(pid) not in found:
            reasons.setdefault(why.get(pid, "not the process of a running rank"), []).append(pid)
    return [*dict.fromkeys(lines), *(f"{_named(pids, names)}: {text}" for text, pids in reasons.items())]

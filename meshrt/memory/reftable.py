"""The table of references of the memory view: the objects in shared memory, and their holders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from meshrt.hooks.measured import ReferenceRow
from meshrt.memory.document import Document
from meshrt.memory.look import GROWTHS, Look, Ordered, grown, growth_of, largest_first
from meshrt.memory.operations import LeftOut
from meshrt.memory.units import amount, change
from meshrt.selection import fold_ranks
from meshrt.show.text import cut

__all__ = ["holder_names", "named", "reference_table", "store_totals", "with_hosts"]

#: Characters of a call site.
_SITE_MAX = 70


def reference_table(document: Document, look: Look) -> tuple[list[str], list[list[str]], int, int]:
    """Return heads and rows of the table, and the number and bytes of the references that are not shown."""
    references = document.references or ()
    keys: dict[str, Callable[[ReferenceRow], Ordered]] = {
        "size": _size,
        "kind": lambda row: (row.kind, row.site),
        "pid": lambda row: row.owner,
        "rank": lambda row: row.owner,
        "growth": grown,
    }
    shown, left_out = largest_first(references, look, keys)
    names = holder_names(document)
    growths = {
        word: head for word, head in GROWTHS.items() if any(growth_of(row, word) is not None for row in references)
    }
    cells = [
        [
            row.names[0] + (f" x{row.count}" if row.count > 1 else ""),
            row.kind + (" (file)" if row.disk else ""),
            amount(row.size, look.units) + (" each" if row.count > 1 else ""),
            *(change(growth_of(row, word), look.units) for word in growths),
            named([row.owner], names),
            named([pid for pid, _ in row.holders], with_hosts(row, document, names)),
            f"{row.age:.0f}",
            _site(row.site),
        ]
        for row in shown
    ]
    beyond = document.references_left_out or LeftOut(0, 0)
    count = sum(row.count for row in left_out) + beyond.count
    heads = ["REFERENCE", "KIND", "SIZE", *growths.values(), "OWNER", "HELD BY", "AGE s", "WRITTEN AT"]
    return heads, cells, count, sum(map(_size, left_out)) + beyond.bytes


def _size(row: ReferenceRow) -> int:
    return row.size * row.count


def holder_names(document: Document) -> dict[int, tuple[str, int]]:
    """Return mesh and rank by pid; for a process that is not a rank, its kind and -1."""
    known = document.holders
    several = len({mesh for mesh, _ in known.values()}) > 1
    names = {each.pid: (each.kind, -1) for each in document.processes}
    for pid, (mesh, rank) in known.items():
        names[int(pid)] = (mesh if several else "", rank)
    return names


def with_hosts(
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


def named(pids: Iterable[int], names: Mapping[int, tuple[str, int]]) -> str:
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


def _site(site: str) -> str:
    return cut(site, _SITE_MAX, begin=True)


def store_totals(document: Document, look: Look) -> list[str]:
    """Return the lines of the sums: one for each store that is not empty."""
    lines = []
    for store in document.stores:
        in_files = store.files or 0  # a view of an earlier version does not contain it
        if not store.committed and not in_files:
            continue
        line = f"shared memory of {store.host}: {amount(store.committed, look.units)} taken of "
        line += f"{amount(store.limit, look.units)} (MESHRT_STORE_LIMIT)"
        line += f", and {amount(in_files, look.units)} in files" if in_files else ""
        fetched = store.fetched
        if fetched.count:
            line += f"; {amount(fetched.bytes, look.units)} in {fetched.count} came from other machines so far"
        rows = [row for row in document.references or () if row.host == store.host]
        if rows:
            unique = sum(map(_size, rows))
            total = sum(_size(row) * len(row.holders) for row in rows)
            line += f"; {_counted(sum(row.count for row in rows))}: {amount(unique, look.units)}, each byte once "
            line += f"({amount(total, look.units)} summed over holders)"
        lines.append(line)
    return lines


def _counted(count: int) -> str:
    return f"{count} reference" + ("" if count == 1 else "s")

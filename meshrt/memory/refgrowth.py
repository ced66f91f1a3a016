"""The growth in shared memory since an earlier document: which line has put more than was released.

References are identified by the line that put them, their owner and holders, and their size; which one is which does
not matter. A hundred that were released and a hundred new ones of the same line are no growth, and neither is one that
changes its holder.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import msgspec

from meshrt.hooks.measured import ReferenceRow
from meshrt.memory.document import Document

__all__ = ["add_growth_of_references"]

Key = tuple[Hashable, ...]


def add_growth_of_references(document: Document, before: Document, word: str) -> Document:
    """Return a document whose references have a growth in bytes, called ``word``.

    ``references_ended`` gets the rows of which nothing is left, with their growth, and a count of 0. If the earlier
    answer has left out references, none counts as new; if the current one has, none counts as ended.
    """
    same_run = document.run_id == before.run_id
    now = _by_key(document.references or (), document, same_run)
    old = _by_key(before.references or (), before, same_run)
    ended = _by_key(document.references_ended or (), document, same_run)
    change = {key: _count(now.get(key, ())) - _count(old.get(key, ())) for key in {**now, **old}}
    _settle(change)
    every = before.references_left_out is None or not before.references_left_out.count
    references = [
        msgspec.structs.replace(row, **{word: 0 if place else change[key] * row.size}) if every or key in old else row
        for key, rows in now.items()
        for place, row in enumerate(rows)
    ]
    found = msgspec.structs.replace(document, references=references)
    if document.references_left_out is not None and document.references_left_out.count:
        return found
    gone = {key: rows for key, rows in old.items() if key not in now and change[key]}
    rows_ended = [
        msgspec.structs.replace(rows[0], count=0, **{word: change.get(key, 0) * rows[0].size})
        for key, rows in {**gone, **ended}.items()
    ]
    return msgspec.structs.replace(found, references_ended=rows_ended)


def _by_key(rows: Iterable[ReferenceRow], document: Document, same_run: bool) -> dict[Key, list[ReferenceRow]]:
    found: dict[Key, list[ReferenceRow]] = {}
    for row in rows:
        found.setdefault(_key(row, document, same_run), []).append(row)
    return found


def _count(rows: Sequence[ReferenceRow]) -> int:
    return sum(row.count for row in rows)


def _settle(change: dict[Key, int]) -> None:
    """Remove references that have only changed their holder: one row has fewer, and another one has more."""
    origins: dict[Key, list[Key]] = {}
    for key in change:
        origins.setdefault(key[:-1], []).append(key)
    for keys in origins.values():
        moved = min(sum(max(0, sign * change[key]) for key in keys) for sign in (1, -1))
        for sign in (1, -1):
            left = moved
            for key in keys:
                part = min(left, max(0, sign * change[key]))
                change[key] -= sign * part
                left -= part


def _key(row: ReferenceRow, document: Document, same_run: bool) -> Key:
    """Return the identity of a row, the holders last. Pids mean nothing in another run."""

    def who(pid: int) -> Hashable:
        if same_run:
            return pid
        kinds = (each.kind for each in document.processes if each.pid == pid)
        return document.holders.get(str(pid)) or next(kinds, "")

    holders = frozenset(who(pid) for pid, _ in row.holders)
    return row.host, row.kind, row.disk, row.site, row.size, who(row.owner), holders

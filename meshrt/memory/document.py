"""The memory view for programs: plain data, as docs/json.md says; with its totals, and as a file.

The variables of a document are folded: a row has ``"sizes"``, one entry for each set of ranks with the same answer.
`entries` unfolds the rows, one entry for each rank, and `folded` is the inverse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from meshrt.errors import UsageError
from meshrt.memory.checking import check
from meshrt.memory.devices import devices_of
from meshrt.memory.merging import order
from meshrt.show.records import Schema, to_text
from meshrt.transport.writing import write_atomic

__all__ = [
    "NAME",
    "SCHEMA",
    "Document",
    "document_of",
    "entries",
    "folded",
    "read",
    "totals_of",
    "unmeasured",
    "write",
]

SCHEMA = Schema("meshrt memory", 1)
#: The keys that identify a variable.
NAME = ("mesh_id", "actor", "kind", "where", "type")
#: Further keys of a size, beside the facts of a variable on a rank.
_SET = ("ranks",)

Document = dict[str, Any]


def document_of(answer: Mapping[str, Any]) -> Document:
    """Return the document of an answer of `meshrt.memory.root.View`."""
    columns = answer["columns"]
    ranks = [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in answer["ranks"]
    ]
    for row in ranks:
        if "mapped" in row and "rss" in row:  # not if a variable is opened
            row["unexplained"] = _unexplained(row)
    told = {name: value for name, value in answer.items() if name != "columns"}
    document: Document = SCHEMA.document({**told, "ranks": ranks})
    document["totals"] = totals_of(document)
    return document


def _unexplained(row: Mapping[str, Any]) -> int:
    """Return the bytes of a rank that are not in files, not free in malloc, and not held by its variables."""
    held = row["unique"] - row["mapped"]  # "mapped" is in files and shared memory
    known = row.get("file", 0) + row.get("shmem", 0) + row.get("malloc_free", 0) + held
    return int(max(0, row["rss"] - known))


def totals_of(document: Document) -> dict[str, Any]:
    """Return the sums over all ranks.

    ``pss`` and ``unique`` count shared bytes once; ``rss`` and ``total`` count them for each rank or variable.
    ``without_rss`` counts ranks without any size, ``without_pss`` the ranks with an RSS only.
    """
    ranks = document["ranks"]
    totals: dict[str, Any] = {name: _sum(ranks, name) for name in ("rss", "pss", "anonymous", "file", "swap")}
    totals["ranks"], totals["without_pss"] = len(ranks), sum("pss" not in row and "rss" in row for row in ranks)
    totals["without_rss"] = sum(map(unmeasured, ranks))
    totals["runtime"] = _sum(document["processes"], "pss")
    told = [row for row in ranks if "unique" in row]
    if "variables" in document:
        totals["variables"] = {
            "ranks": len(told),
            **{
                name: _sum(told, name)
                for name in ("unique", "total", "rss", "file", "shmem", "malloc_free", "unexplained")
            },
            "exact": all(row["exact"] for row in told),
        }
    devices = devices_of(ranks)
    if devices:
        totals["devices"] = devices
    return totals


def unmeasured(row: Mapping[str, Any]) -> bool:
    """Whether the size of a rank that is not dead is unknown, for example because its host agent has not answered."""
    return "rss" not in row and row["state"] != "dead"


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> int:
    return sum(row.get(name, 0) for row in rows)


def entries(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield variables, rank by rank: the keys of a row and of its size, and ``"rank"``."""
    for row in rows:
        name = {word: row[word] for word in NAME}
        for size in row["sizes"]:
            facts = {word: value for word, value in size.items() if word not in _SET}
            for rank in size["ranks"]:
                yield {**name, **facts, "rank": rank}


def folded(flat: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the folded rows of `entries`, the largest variable first."""
    rows: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for entry in flat:
        facts = {word: value for word, value in entry.items() if word not in (*NAME, "rank")}
        sizes = rows.setdefault(tuple(entry[word] for word in NAME), {})
        sizes.setdefault(json.dumps(facts, sort_keys=True), {"ranks": [], **facts})["ranks"].append(entry["rank"])
    found = [
        {
            **dict(zip(NAME, name, strict=True)),
            "sizes": sorted(sizes.values(), key=lambda size: (-len(size["ranks"]), size["ranks"])),
        }
        for name, sizes in rows.items()
    ]
    found.sort(key=order)
    return found


def write(path: Path, document: Document) -> None:
    """Write a document to a file. Raises UsageError: it cannot be written."""
    try:
        write_atomic(path, to_text(document), durable=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def read(path: Path) -> Document:
    """Read a file back. Raises UsageError: it cannot be read, is damaged, or is not a document."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        document = None
    if not SCHEMA.is_of(document):
        raise UsageError(f"{path} is no snapshot of memory; expected a file that meshrt memory --save has written")
    if document.get("version") != SCHEMA.version:
        raise UsageError(f"{path} has version {document.get('version')!r}; this meshrt reads version {SCHEMA.version}")
    try:
        check(document)
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    return document

"""Documents of the memory view, as ranks that are none would have told them."""

from __future__ import annotations

from typing import Any

from meshrt.hooks.facts import Group
from meshrt.memory.document import Document, document_of
from meshrt.memory.merging import Merged
from meshrt.memory.root import COLUMNS

__all__ = ["MIB", "document", "lines", "rank", "reference", "variable"]

MIB = 1 << 20


def variable(where: str, count: int, **more: Any) -> dict[str, Any]:
    return {"actor": "a", "kind": "attribute", "where": where, "type": "list", "bytes": count, "exact": True, **more}


def rank(number: int, rss: int, **more: Any) -> dict[str, Any]:
    return {
        "mesh_id": "m", "mesh": "mesh1", "rank": number, "coords": {"n": number}, "host": f"node{number % 2}",
        "node": f"node{number % 2}", "pid": 100 + number, "actors": ["a"], "state": "running", "note": "",
        "rss": rss, "pss": rss // 2, "shared": MIB, "anonymous": rss - MIB, "file": MIB, "swap": 0, **more,
    }  # fmt: skip


def document(
    ranks: list[dict[str, Any]], variables: dict[int, list[dict[str, Any]]] | None = None, **more: Any
) -> Document:
    """A document of these ranks, and of what they have said of their variables."""
    answer: dict[str, Any] = {
        "time": 100.0,
        "run_id": "r",
        "processes": [{"kind": "script", "pid": 1, "pss": 5 * MIB}],
        **more,
    }
    if variables is not None:
        merged = Merged()
        for number, rows in variables.items():
            total = sum(row["bytes"] for row in rows)
            said = {"unique": total, "total": total, "exact": all(row["exact"] for row in rows)}
            merged.add(Group("m", (number,), "answered", {"rows": rows, **said}, {}))
            ranks[number] = {"mapped": 0, **ranks[number], **said}
        answer["variables"], answer["variables_left_out"] = merged.rows(1 << 20)
    return document_of({"columns": COLUMNS, "ranks": [[row.get(name) for name in COLUMNS] for row in ranks], **answer})


def lines(text: str, *starts: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith(starts)]


def reference(
    count: int, *, site: str = "train.py:9", holders: tuple[int, ...] = (100,), **more: Any
) -> dict[str, Any]:
    """References of 1 MiB each, put by rank 0 (pid 100)."""
    return {
        "host": "node0", "kind": "put", "disk": False, "site": site, "owner": 100, "size": MIB, "count": count,
        "holders": [[pid, 1] for pid in holders], "age": 1.0, "names": ["abc"], **more,
    }  # fmt: skip

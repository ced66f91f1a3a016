"""Documents of the memory view, as ranks that do not exist would have told them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from meshrt.hooks.facts import Answered
from meshrt.hooks.measured import ReferenceRow
from meshrt.memory.document import Document, document_of
from meshrt.memory.merging import Merged
from meshrt.memory.operations import Looked, ProcessRow, RankRow, VariableRow, Variables

__all__ = ["MIB", "SCRIPT", "document", "lines", "rank", "reference", "said", "variable"]

MIB = 1 << 20
SCRIPT = ProcessRow(kind="script", pid=1, pss=5 * MIB)


def variable(where: str, count: int, **more: Any) -> VariableRow:
    """Return what a rank tells of a variable; ``more``: its type, and further fields of its size."""
    type_name = more.pop("type", "list")
    size = {"bytes": count, "exact": True, **more}
    row = {"actor": "a", "kind": "attribute", "where": where, "type": type_name, "sizes": [size]}
    return msgspec.convert(row, VariableRow)


def rank(number: int, rss: int | None, **more: Any) -> RankRow:
    facts: dict[str, Any] = {
        "mesh_id": "m", "mesh": "mesh1", "rank": number, "coords": {"n": number}, "host": f"node{number % 2}",
        "node": f"node{number % 2}", "pid": 100 + number, "actors": ["a"], "state": "running", "note": "",
    }  # fmt: skip
    if rss is not None:
        facts.update(rss=rss, pss=rss // 2, shared=MIB, anonymous=rss - MIB, file=MIB, swap=0)
    return msgspec.convert({**facts, **more}, RankRow)


def said(rows: Sequence[VariableRow], **more: Any) -> Variables:
    """Return the answer of a rank about its variables."""
    total = sum(row.sizes[0].bytes for row in rows)
    exact = all(row.sizes[0].exact for row in rows)
    return Variables(**{"rows": rows, "unique": total, "total": total, "exact": exact, **more})


def document(
    ranks: Sequence[RankRow],
    variables: Mapping[int, Sequence[VariableRow]] | None = None,
    *,
    time: float = 100.0,
    processes: Sequence[ProcessRow] = (SCRIPT,),
    **more: Any,
) -> Document:
    """Return the document of these ranks, and of what they have told of their variables."""
    rows = list(ranks)
    if variables is not None:
        merged = Merged()
        for number, told in variables.items():
            answer = said(told)
            merged.add(Answered("m", (number,), answer, {}))
            row = rows[number]
            rows[number] = msgspec.structs.replace(
                row, mapped=row.mapped or 0, unique=answer.unique, total=answer.total, exact=answer.exact
            )
        more["variables"], more["variables_left_out"] = merged.rows(1 << 20)
    return document_of(Looked(time=time, run_id="r", ranks=rows, processes=list(processes), **more))


def lines(text: str, *starts: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith(starts)]


def reference(count: int, *, site: str = "train.py:9", holders: tuple[int, ...] = (100,), **more: Any) -> ReferenceRow:
    """References of 1 MiB each, put by rank 0 (pid 100)."""
    facts = {
        "host": "node0", "kind": "put", "disk": False, "site": site, "owner": 100, "size": MIB, "count": count,
        "holders": [(pid, 1) for pid in holders], "age": 1.0, "names": ["abc"], **more,
    }  # fmt: skip
    return msgspec.convert(facts, ReferenceRow)

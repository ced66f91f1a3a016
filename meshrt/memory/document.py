"""The memory view for programs, as docs/json.md says: with its totals, as plain data, and as a file.

The variables of a document are folded: a row has one size for each set of ranks with the same answer. `entries` unfolds
the rows, one size for each rank, and `meshrt.memory.merging.folded` is the inverse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from meshrt.conversion import convert
from meshrt.errors import UsageError
from meshrt.hooks.measured import Count, Number, ReferenceRow
from meshrt.hooks.operations import Data
from meshrt.memory.devices import devices_of
from meshrt.memory.merging import Name, name_of
from meshrt.memory.operations import Looked, ProcessRow, RankRow, SizeRow, VariableRow
from meshrt.show.records import MEMORY, to_text
from meshrt.transport.writing import write_atomic

__all__ = [
    "Document",
    "Totals",
    "TotalsOfVariables",
    "document_of",
    "entries",
    "of_mesh",
    "plain",
    "read",
    "totals_of",
    "unmeasured",
    "write",
]


class TotalsOfVariables(Data, frozen=True, kw_only=True):
    """The sums over the ranks that have told their variables; ``ranks``: how many."""

    ranks: Count
    unique: Count
    total: Count
    rss: Count
    file: Count
    shmem: Count
    malloc_free: Count
    unexplained: Count
    exact: bool


class Totals(Data, frozen=True, kw_only=True, omit_defaults=True):
    """The sums over all ranks.

    ``pss`` and ``unique`` count shared bytes once; ``rss`` and ``total`` count them for each rank or variable.

    Attributes:
        ranks: How many.
        without_rss, without_pss: How many of them without any size, and with an RSS only.
        runtime: PSS of the script and the host agents.
        devices: Bytes by host and device.
    """

    rss: Count
    pss: Count
    anonymous: Count | None = None
    file: Count | None = None
    swap: Count
    ranks: Count
    without_pss: Count
    without_rss: Count | None = None
    runtime: Count
    variables: TotalsOfVariables | None = None
    devices: Mapping[str, Count] | None = None
    growth: Count | None = None
    grown: Count | None = None


class Document(Looked, frozen=True, kw_only=True, omit_defaults=True):
    """What a program has answered, with sums, and with the growth since an earlier document (`meshrt.memory.growth`).

    Attributes:
        since, since_first: Epoch seconds of the earlier document, and of the first one.
        since_run: The id of the earlier run, if that is another one.
        ended, references_ended: Variables and references that are no more.
        not_compared: The parts that the earlier document does not have.
    """

    totals: Totals
    since: Number | None = None
    since_first: Number | None = None
    since_run: str | None = None
    ended: Sequence[str] | None = None
    references_ended: Sequence[ReferenceRow] | None = None
    not_compared: Sequence[Literal["variables", "references"]] | None = None


def document_of(answer: Looked) -> Document:
    """Return the document of an answer of `meshrt.memory.root.Looking`."""
    fields = msgspec.structs.asdict(answer)
    fields["ranks"] = ranks = [
        RankRow(**{**msgspec.structs.asdict(row), "unexplained": _unexplained(row)}) for row in answer.ranks
    ]
    told = answer.variables is not None
    return Document(**fields, totals=totals_of(ranks, answer.processes, variables=told))


def _unexplained(row: RankRow) -> int | None:
    """Return the bytes of a rank that are not in files, not free in malloc, and not held by its variables."""
    if row.mapped is None or row.rss is None:
        return None  # for example, a variable is opened
    held = (row.unique or 0) - row.mapped  # "mapped" is in files and shared memory
    return max(0, row.rss - (row.file or 0) - (row.shmem or 0) - (row.malloc_free or 0) - held)


def totals_of(ranks: Sequence[RankRow], processes: Iterable[ProcessRow], *, variables: bool) -> Totals:
    """Return the sums; ``variables``: whether ranks were asked for their variables."""
    devices = devices_of(ranks)
    return Totals(
        rss=sum(row.rss or 0 for row in ranks),
        pss=sum(row.pss or 0 for row in ranks),
        anonymous=sum(row.anonymous or 0 for row in ranks),
        file=sum(row.file or 0 for row in ranks),
        swap=sum(row.swap or 0 for row in ranks),
        ranks=len(ranks),
        without_pss=sum(row.pss is None and row.rss is not None for row in ranks),
        without_rss=sum(map(unmeasured, ranks)),
        runtime=sum(row.pss or 0 for row in processes),
        variables=_of_variables([row for row in ranks if row.unique is not None]) if variables else None,
        devices=devices or None,
    )


def _of_variables(told: Sequence[RankRow]) -> TotalsOfVariables:
    names = ("unique", "total", "rss", "file", "shmem", "malloc_free", "unexplained")
    sums = {name: sum(getattr(row, name) or 0 for row in told) for name in names}
    return TotalsOfVariables(ranks=len(told), exact=all(row.exact for row in told), **sums)


def unmeasured(row: RankRow) -> bool:
    """Whether the size of a rank that is not dead is unknown, for example because its host agent has not answered."""
    return row.rss is None and row.state != "dead"


def of_mesh(document: Document, mesh_id: str) -> Document:
    """Return what a document has of one mesh: rank numbers are not unique among meshes."""
    ranks = [row for row in document.ranks if row.mesh_id == mesh_id]
    variables = document.variables
    if variables is not None:
        variables = [row for row in variables if row.mesh_id == mesh_id]
    totals = totals_of(ranks, document.processes, variables=variables is not None)
    return msgspec.structs.replace(document, ranks=ranks, variables=variables, totals=totals)


def entries(rows: Iterable[VariableRow]) -> Iterator[tuple[Name, int, SizeRow]]:
    """Yield variables, rank by rank: name, rank and size."""
    for row in rows:
        name = name_of(row)
        for size in row.sizes:
            for rank in size.ranks:
                yield name, rank, size


def plain(document: Document, **more: object) -> dict[str, object]:
    """Return a document as JSON has it; ``more``: further keys. (Any: what JSON holds.)"""
    facts: dict[str, Any] = msgspec.to_builtins(document)
    for row in (*facts.get("references", ()), *facts.get("references_ended", ())):
        row["holders"] = list(map(list, row["holders"]))  # JSON has no tuples
    if document.references is not None:
        facts["holders"] = {pid: list(who) for pid, who in document.holders.items()}
    return MEMORY.document({**facts, **more})


def write(path: Path, document: Document) -> None:
    """Write a document to a file. Raises UsageError: it cannot be written."""
    try:
        write_atomic(path, to_text(plain(document)), durable=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def read(path: Path) -> Document:
    """Read a file back. Raises UsageError: it cannot be read, is damaged, or is not a document."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}; expected a file that meshrt memory --save has written"
        ) from None
    except (ValueError, RecursionError):
        found = None
    if not MEMORY.is_of(found):
        raise UsageError(f"{path} is not a snapshot of memory; expected a file that meshrt memory --save has written")
    if found.get("version") != MEMORY.version:
        raise UsageError(f"{path} has version {found.get('version')!r}; this meshrt reads version {MEMORY.version}")
    try:
        document = convert(found, Document)
        _check(document)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    return document


def _check(document: Document) -> None:
    """Raise ValueError if a part of a document is missing without which another part cannot be shown."""
    if not all(size.ranks for row in document.variables or () for size in row.sizes):
        raise ValueError("a size of a variable has no ranks")
    if not all(row.ranks for row in document.holding or ()):
        raise ValueError("a variable that holds references has no ranks")
    if (document.variables is None) != (document.totals.variables is None):
        raise ValueError("variables without totals.variables, or the reverse")
    if document.since is not None and document.totals.growth is None:
        raise ValueError("since without totals.growth")

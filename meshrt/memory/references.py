"""The references in the shared memory of the hosts (`meshrt.store`), for the memory view."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.measured import Measured, ReferenceRow, StoreRow
from meshrt.memory.operations import Holders, HoldingRow, LeftOut

__all__ = ["Held", "References", "held_of", "holding_of", "references_of", "stores_of"]

#: Bytes of a row in a message, beside its texts and its holders.
_ROW = 140
_HOLDER = 12


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a process in the stores: that it has written, that it holds of others, and what others alone hold."""

    own: int = 0
    held: int = 0
    pinned: int = 0


@dataclass(frozen=True, slots=True)
class References:
    """The largest references, the others, and mesh and rank of those that own or hold one, by pid."""

    rows: list[ReferenceRow]
    left_out: LeftOut
    holders: dict[int, tuple[str, int]]


def held_of(measured: Measured) -> dict[int, Held]:
    """Return what processes have in the stores, by pid."""
    found: dict[int, Held] = {}
    for facts in measured.agents.values():
        for pid, own, held, pinned in facts.store.held if facts.store is not None else ():
            known = found.get(pid, Held())
            found[pid] = Held(known.own + own, known.held + held, known.pinned + pinned)
    return found


def stores_of(measured: Measured) -> list[StoreRow]:
    """Return the stores."""
    return [
        StoreRow(
            host=host,
            committed=facts.store.committed,
            limit=facts.store.limit,
            files=facts.store.files,
            fetched=facts.store.fetched,
            sent=facts.store.sent,
        )
        for host, facts in measured.agents.items()
        if facts.store is not None
    ]


def references_of(
    measured: Measured, ranks: Mapping[int, tuple[str, int]], chosen: Container[int] | None, budget: int
) -> References:
    """Return the largest references.

    Args:
        ranks: Mesh and rank by pid.
        chosen: Only references that one of these processes owns or holds. None: all.
        budget: Bytes of the references in a message, at most.
    """
    found = sorted(
        (row for row in measured.references if chosen is None or any(pid in chosen for pid in _pids(row))),
        key=lambda row: -row.size * row.count,
    )
    kept: list[ReferenceRow] = []
    for row in found:
        budget -= _ROW + len(row.site) + _HOLDER * len(row.holders)
        if budget < 0:
            break
        kept.append(row)
    beyond = found[len(kept) :]
    left_out = LeftOut(sum(row.count for row in beyond), sum(row.size * row.count for row in beyond))
    return References(kept, left_out, {pid: ranks[pid] for row in kept for pid in _pids(row) if pid in ranks})


def _pids(row: ReferenceRow) -> list[int]:
    return [row.owner, *(pid for pid, _ in row.holders)]


def holding_of(groups: Iterable[Answered[Holders, None] | Unanswered]) -> tuple[list[HoldingRow], bool]:
    """Return which variables hold references, from the answers of ranks, and whether everything was walked.

    A rank that holds a reference outside of its variables has no row.
    """
    exact = True
    # Ranks with the same answer come in several groups if one of them takes longer than an agent waits.
    same: dict[bytes, HoldingRow] = {}
    for group in groups:
        if not isinstance(group, Answered):
            exact = exact and group.kind == "gone"
            continue
        exact = exact and group.same.exact
        for row in group.same.rows:
            of_mesh = msgspec.structs.replace(row, mesh_id=group.mesh_id)
            key = msgspec.json.encode(of_mesh)
            known = same.get(key, of_mesh)
            same[key] = msgspec.structs.replace(known, ranks=sorted([*known.ranks, *group.ranks]))
    return sorted(same.values(), key=lambda row: (row.mesh_id, row.ranks, row.where)), exact

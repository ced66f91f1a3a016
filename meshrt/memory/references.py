"""The references in the shared memory of the hosts (`meshrt.store`), for the memory view: plain data."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgpack

from meshrt.hooks.facts import Group, Measured

__all__ = ["held_of", "holding_of", "references_of", "stores_of", "without_store"]

#: Bytes of a row in a message, beside its texts and its holders.
_ROW = 140
_HOLDER = 12
#: Bytes of a process in a store, in the order of `meshrt.store.table.held_by`.
_OF_RANK = ("store_own", "store_held", "store_pinned")
#: Facts of a store.
_OF_STORE = ("committed", "limit", "files", "fetched", "sent")


def held_of(measured: Measured) -> dict[int, dict[str, int]]:
    """Return, by pid, ``{"store_own", "store_held", "store_pinned"}``, as docs/json.md says."""
    found: dict[int, dict[str, int]] = {}
    for facts in measured.agents.values():
        for pid, *bytes_of in facts.get("store", {}).get("held", ()):
            sums = found.setdefault(pid, dict.fromkeys(_OF_RANK, 0))
            for word, count in zip(_OF_RANK, bytes_of, strict=True):
                sums[word] += count
    return found


def without_store(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an agent itself, without those of its store."""
    return {name: value for name, value in facts.items() if name != "store"}


def stores_of(measured: Measured) -> list[dict[str, Any]]:
    """Return the stores: ``{"host", "committed", "limit", "files", "fetched", "sent"}``, as docs/json.md says."""
    return [
        {"host": host, **{name: facts["store"][name] for name in _OF_STORE}}
        for host, facts in measured.agents.items()
        if "store" in facts
    ]


def references_of(
    measured: Measured, ranks: Mapping[int, tuple[str, int]], chosen: Container[int] | None, budget: int
) -> dict[str, Any]:
    """Return ``{"references": the largest, "references_left_out": {"count", "bytes"}, "holders"}``.

    Args:
        ranks: Mesh and rank by pid; ``"holders"`` contains those that own or hold a reference.
        chosen: Only references that one of these processes owns or holds. None: all.
        budget: Bytes of the references in a message, at most.
    """
    found = sorted(
        (row for row in measured.references if chosen is None or any(pid in chosen for pid in _pids(row))),
        key=lambda row: -row["size"] * row["count"],
    )
    kept: list[dict[str, Any]] = []
    for row in found:
        budget -= _ROW + len(row["site"]) + _HOLDER * len(row["holders"])
        if budget < 0:
            break
        kept.append(row)
    beyond = found[len(kept) :]
    left_out = {
        "count": sum(row["count"] for row in beyond),
        "bytes": sum(row["size"] * row["count"] for row in beyond),
    }
    holders = {pid: list(ranks[pid]) for row in kept for pid in _pids(row) if pid in ranks}
    return {
        "references": kept,
        "references_left_out": left_out,
        "holders": {str(pid): who for pid, who in holders.items()},
    }


def _pids(row: Mapping[str, Any]) -> list[int]:
    return [row["owner"], *(pid for pid, _ in row["holders"])]


def holding_of(groups: Iterable[Group]) -> dict[str, Any]:
    """Return which variables hold references, from the answers of ranks (`meshrt.memory.holding`).

    ``{"holding": rows, with "mesh_id" and "ranks", "holding_exact": whether everything was walked}``. A rank that holds
    a reference outside of its variables has no row.
    """
    told = list(groups)
    answered = [group for group in told if group.kind == "answered"]
    # Ranks with the same answer come in several groups if one of them takes longer than an agent waits.
    same: dict[bytes, dict[str, Any]] = {}
    for group in answered:
        for row in group.same["rows"]:
            found = same.setdefault(msgpack.packb([group.mesh_id, row]), {"mesh_id": group.mesh_id, "ranks": [], **row})
            found["ranks"] = sorted([*found["ranks"], *group.ranks])
    rows = list(same.values())
    rows.sort(key=lambda row: (row["mesh_id"], row["ranks"], row["where"]))
    walked = all(group.kind not in ("silent", "refused") for group in told)
    return {"holding": rows, "holding_exact": walked and all(group.same["exact"] for group in answered)}

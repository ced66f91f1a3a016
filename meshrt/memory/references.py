"""What is in the shared memory of the hosts (`meshrt.store`), for the memory view: plain data."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from meshrt.hooks import Measured

__all__ = ["held_of", "references_of", "stores_of", "without_store"]

#: Bytes of a row in a message, beside its texts and its holders.
_ROW = 140
_HOLDER = 12


def held_of(measured: Measured) -> dict[int, dict[str, int]]:
    """Return, by pid, ``{"store_own", "store_held"}``: bytes that it has written, and of others that it holds."""
    found: dict[int, dict[str, int]] = {}
    for facts in measured.agents.values():
        for pid, own, held in facts.get("store", {}).get("held", ()):
            sums = found.setdefault(pid, {"store_own": 0, "store_held": 0})
            sums["store_own"] += own
            sums["store_held"] += held
    return found


def without_store(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an agent says of itself."""
    return {name: value for name, value in facts.items() if name != "store"}


def stores_of(measured: Measured) -> list[dict[str, Any]]:
    """Return the stores: ``{"host", "committed", "limit"}``, bytes."""
    return [
        {"host": host, "committed": facts["store"]["committed"], "limit": facts["store"]["limit"]}
        for host, facts in measured.agents.items()
        if "store" in facts
    ]


def references_of(
    measured: Measured, ranks: Mapping[int, tuple[str, int]], chosen: Container[int] | None, budget: int
) -> dict[str, Any]:
    """Return ``{"references": the largest, "references_left_out": {"count", "bytes"}, "holders"}``.

    Args:
        ranks: By pid, mesh and rank; for ``"holders"``: of those that own or hold something.
        chosen: Only what one of these processes owns or holds.
        budget: Bytes that they may take in a message.
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

"""Grouping of ranks."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["by_mesh"]


def by_mesh(addresses: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return base ranks by mesh id, in the given order, in the form that `RootServices.gather` takes."""
    targets: dict[str, list[int]] = {}
    for mesh_id, rank in addresses:
        targets.setdefault(mesh_id, []).append(rank)
    return targets

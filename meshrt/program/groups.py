"""Ranks that belong together."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["by_mesh"]


def by_mesh(addresses: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return base ranks by mesh id, in the order in which they are given, as `RootServices.gather` takes them."""
    targets: dict[str, list[int]] = {}
    for mesh_id, rank in addresses:
        targets.setdefault(mesh_id, []).append(rank)
    return targets

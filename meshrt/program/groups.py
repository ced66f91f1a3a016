"""Grouping of ranks, and of what is told of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

__all__ = ["by_key", "by_mesh", "rank_sets"]

K = TypeVar("K")
V = TypeVar("V")


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values by key, both in the given order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def by_mesh(addresses: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return base ranks by mesh id, in the given order, in the form that `RootServices.gather` takes."""
    return by_key(addresses)


def rank_sets(addresses: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return base ranks by mesh id, ascending, each once."""
    return {mesh_id: sorted(set(ranks)) for mesh_id, ranks in by_key(addresses).items()}

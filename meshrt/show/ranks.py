"""Sets of ranks of several meshes, as text for users. In data they are lists of numbers, by mesh id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshrt.selection import fold_ranks

__all__ = ["fold_meshes"]


def fold_meshes(ranks: Mapping[str, Sequence[int]], names: Mapping[str, str]) -> str:
    """Return ranks as text, ``"0-3"``, or ``"left 0-1, m2 0-3"`` where there are several meshes.

    Args:
        ranks: By mesh id.
        names: Names of all meshes of the program, by mesh id; the text contains them if there are several meshes.
    """
    known = {**names, **{mesh_id: mesh_id for mesh_id in ranks if mesh_id not in names}}  # its mesh has just ended
    if len(known) == 1:
        return fold_ranks(rank for members in ranks.values() for rank in members)
    return ", ".join(f"{name} {fold_ranks(ranks[mesh_id])}" for mesh_id, name in known.items() if mesh_id in ranks)

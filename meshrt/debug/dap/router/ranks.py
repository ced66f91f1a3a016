"""Ranks that an IDE may attach to, and their names for the user. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from meshrt.debug.dap.operations import Rank
from meshrt.program.groups import by_mesh
from meshrt.selection import fold_ranks

__all__ = ["Key", "Names", "Rank"]

#: Mesh id and base rank. A pid would be that of other ranks on other hosts, too.
Key = tuple[str, int]


class Names:
    """The names of ranks in a session: their numbers, and their meshes if it knows several."""

    def __init__(self) -> None:
        self._meshes: dict[str, str] = {}

    def meet(self, rank: Rank) -> None:
        """Know a rank, and its mesh."""
        self._meshes[rank.mesh] = rank.mesh_name or rank.mesh

    def mesh(self, mesh_id: str) -> str:
        """Return what to put before ranks of that mesh: ``"trainers "``, or "" where there is no other."""
        if len(self._meshes) < 2:
            return ""
        name = self._meshes.get(mesh_id, mesh_id)
        return f"{name if list(self._meshes.values()).count(name) == 1 else mesh_id} "

    def of(self, ranks: Iterable[Key]) -> str:
        """Return ``"rank 3"``, ``"ranks 0-3"``, or ``"trainers ranks 0-3, loaders rank 1"``."""
        return self._each(ranks, "rank ", "ranks ")

    def numbers(self, ranks: Iterable[Key]) -> str:
        """Return ``"0-3"``, or ``"trainers 0-3, loaders 1"``."""
        return self._each(ranks, "", "")

    def _each(self, ranks: Iterable[Key], one: str, many: str) -> str:
        meshes = by_mesh(sorted(ranks))
        return ", ".join(
            f"{self.mesh(mesh_id)}{one if len(found) == 1 else many}{fold_ranks(found)}"
            for mesh_id, found in meshes.items()
        )

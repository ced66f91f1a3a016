"""Merged stacks reduced to some ranks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from msgspec.structs import replace

from meshrt.inspect.merged import MergedMesh, RankSet, StackNode
from meshrt.selection import Shape, fold_coordinates, fold_ranks

__all__ = ["narrowed"]

R = TypeVar("R", bound=RankSet)
N = TypeVar("N", bound=StackNode)


def narrowed(mesh: MergedMesh, ranks: Collection[int], shape: Shape) -> MergedMesh:
    """Return the stacks of one mesh without those that belong to other ranks only.

    Merged facts stay merged: the lines of running ranks, the times, the names of threads.

    Args:
        ranks: Base ranks to keep.
        shape: The mesh's.
    """
    return _Narrowing(frozenset(ranks), shape).mesh(mesh)


class _Narrowing:
    def __init__(self, ranks: frozenset[int], shape: Shape) -> None:
        self._ranks = ranks
        self._shape = shape

    def mesh(self, mesh: MergedMesh) -> MergedMesh:
        return replace(
            mesh,
            asked=len(self._ranks),
            answered=self._set(mesh.answered),
            waiting=self._set(mesh.waiting),
            culprits=self._set(mesh.culprits),
            without=self._parts(mesh.without),
            trees=self._nodes(mesh.trees),
        )

    def _nodes(self, nodes: Iterable[N]) -> list[N]:
        return [
            replace(node, children=self._nodes(node.children), classes=self._parts(node.classes))
            for node in self._parts(nodes)
        ]

    def _parts(self, parts: Iterable[R]) -> list[R]:
        """Return the parts that include some of the ranks, reduced to these."""
        return [part for part in map(self._set, parts) if part.count]

    def _set(self, part: R) -> R:
        members = frozenset(part.ranks) & self._ranks
        folded = fold_ranks(members)
        text = fold_coordinates(members, self._shape) if members else ""
        return replace(part, count=len(members), ranks=sorted(members), text="" if text == folded else text)

"""Merged stacks reduced to some ranks. Pure, on plain data (`meshrt.inspect.plain`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from meshrt.selection import Shape, fold_coordinates, fold_ranks

__all__ = ["narrowed"]

Plain = Mapping[str, Any]


def narrowed(mesh: Plain, ranks: Collection[int], shape: Shape) -> dict[str, Any]:
    """Return the stacks of one mesh without those that belong to other ranks only.

    Merged facts stay merged: the lines of running ranks, the times, the names of threads.

    Args:
        mesh: One of ``meshes``.
        ranks: Base ranks to keep.
        shape: The mesh's.
    """
    return _Narrowing(frozenset(ranks), shape).mesh(mesh)


class _Narrowing:
    def __init__(self, ranks: frozenset[int], shape: Shape) -> None:
        self._ranks = ranks
        self._shape = shape

    def mesh(self, mesh: Plain) -> dict[str, Any]:
        return {
            **mesh,
            "asked": len(self._ranks),
            **{name: self._set(mesh[name]) for name in ("answered", "waiting", "culprits")},
            "without": self._parts(mesh["without"]),
            "trees": [self._node(tree) for tree in self._parts(mesh["trees"])],
        }

    def _node(self, node: Plain) -> dict[str, Any]:
        children = [self._node(child) for child in self._parts(node["children"])]
        return {**node, "children": children, "classes": self._parts(node["classes"])}

    def _parts(self, parts: Iterable[Plain]) -> list[dict[str, Any]]:
        """Return the parts that include some of the ranks, reduced to these."""
        narrow = [{**part, **self._set(part)} for part in parts]
        return [part for part in narrow if part["count"]]

    def _set(self, part: Plain) -> dict[str, Any]:
        members = frozenset(part["ranks"]) & self._ranks
        folded = fold_ranks(members)
        text = fold_coordinates(members, self._shape) if members else ""
        return {"count": len(members), "ranks": sorted(members), "text": "" if text == folded else text}

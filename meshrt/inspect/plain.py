"""Merged stacks as plain data: what a terminal is sent, and what scripts read.

::

    {"meshes": [{
        "mesh_id", "name",
        "asked": count, "answered": SET, "waiting": SET, "culprits": SET,
        "without": [{"kind": "gone" | "silent" | "refused", "why": text, **SET}],
        "trees": [{"kind": "actor" | "task" | "thread", "label", **NODE}]}]}

    NODE: {"file", "function", "lines": [low, high], "hidden", **SET, "children": [NODE], "classes": [CLASS]}
    CLASS: {"state", "holder", "source", **SET, "since": [least, most] or [], "cpu": the same, "names", "endpoints"}
    SET: {"count", "ranks": "0-31,33", "text": the same, or "hosts=*, gpus=3" where it is a slice of the mesh}

The largest child comes first. A tree of very many nodes is cut: what does not fit is one child with the function
"... N further places".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshrt.inspect.classes import Leaf, MeshStacks, Node
from meshrt.selection import Shape, fold_coordinates, fold_ranks

__all__ = ["mesh_to_wire"]

#: Nodes and classes of one mesh; each takes about 200 bytes of a control message.
_MOST = 2500
#: Names of threads that a class tells.
_NAMES = 5


def mesh_to_wire(mesh_id: str, mesh: MeshStacks) -> dict[str, Any]:
    """Return the answers of one mesh."""
    writer = _Writer(mesh.shape)
    return {
        "mesh_id": mesh_id,
        "name": mesh.name,
        "asked": len(mesh.asked),
        "answered": writer.set(mesh.answered),
        "waiting": writer.set(mesh.waiting()),
        "culprits": writer.set(mesh.culprits()),
        "without": [{"kind": kind, "why": why, **writer.set(ranks)} for (kind, why), ranks in mesh.without.items()],
        "trees": [{"kind": tree.kind, "label": tree.label, **writer.node(tree.root)} for tree in mesh.trees.values()],
    }


class _Writer:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._left = _MOST

    def set(self, ranks: Iterable[int]) -> dict[str, Any]:
        members = set(ranks)
        text = fold_coordinates(members, self._shape) if members else ""
        return {"count": len(members), "ranks": fold_ranks(members), "text": text}

    def node(self, node: Node) -> dict[str, Any]:
        self._left -= 1 + len(node.leaves)
        ordered = node.ordered()
        children = []
        for index, child in enumerate(ordered):
            if self._left <= 0 and index < len(ordered) - 1:
                children.append(self._further(ordered[index:]))
                break
            children.append(self.node(child))
        return {
            "file": node.file,
            "function": node.function,
            "lines": list(node.lines),
            "hidden": node.hidden,
            **self.set(node.ranks),
            "children": children,
            "classes": [self._leaf(leaf) for leaf in node.ordered_leaves()],
        }

    def _further(self, nodes: list[Node]) -> dict[str, Any]:
        ranks = {rank for node in nodes for rank in node.ranks}
        return self.node(Node(function=f"... {len(nodes)} further places", ranks=ranks))

    def _leaf(self, leaf: Leaf) -> dict[str, Any]:
        names = sorted(leaf.names)
        return {
            "state": leaf.state,
            "holder": leaf.holder,
            "source": leaf.source,
            **self.set(leaf.ranks),
            "since": list(leaf.since or ()),
            "cpu": list(leaf.cpu or ()),
            "names": names[:_NAMES] + ["..."] * (len(names) > _NAMES),
            "endpoints": sorted(leaf.endpoints)[:_NAMES],
        }

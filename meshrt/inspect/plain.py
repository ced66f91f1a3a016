"""Merged stacks as plain data: for terminals, and for scripts (documented in docs/json.md).

::

    {"meshes": [MESH], "left_out": count of further meshes, and the fields of `meshrt.inspect.waittext`}

    MESH: {"mesh_id", "name", "asked": count, "answered": SET, "waiting": SET, "culprits": SET,
           "without": [{"kind": "gone" | "silent" | "refused", "why": text, **SET}],
           "trees": [{"kind": "actor" | "task" | "thread", "label", **NODE}], "left_out": count of further places}
    NODE: {"frames": [FRAME], **SET, "children": [NODE], "classes": [CLASS]}
    FRAME: {"file", "function", "lines": [low, high], "hidden"}
    CLASS: {"state", "holder", "source", **SET, "since": [least, most] or [], "cpu": the same, "names", "endpoints"}
    SET: {"count", "ranks": [0, 1, 3], "text": "" or "all" or "hosts=*, gpus=3", which is easier to read}

Frames with the same ranks are one node; the largest child comes first. Everything together takes at most `BUDGET`
bytes. The meshes share them evenly; what one of them does not need is used by the others. In a mesh, ranks without a
stack come first, then actors, then tasks and threads; within these, the parts with the most ranks first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgpack

from meshrt.inspect.classes import Leaf, MeshStacks, Node
from meshrt.selection import Shape, fold_coordinates, fold_ranks

__all__ = ["BUDGET", "to_wire"]

#: Most bytes of everything as msgpack. A control message holds 1 MiB.
BUDGET = 700_000
#: A list of more than 15 items takes this many more bytes than an empty one.
_LIST = 4
#: Most names of threads, and of endpoints, in a class.
_NAMES = 5
#: Most characters of a reason.
_WHY = 2000
_KINDS = ("actor", "task", "thread")

#: A part that may be included: its size in bytes, and a function that puts it in its place.
_Offer = tuple[int, Callable[[], None]]


def to_wire(meshes: Mapping[str, MeshStacks], beside: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the answers of all meshes.

    Args:
        beside: Further fields, from the same budget.
    """
    wire: dict[str, Any] = {"meshes": [], "left_out": 0, **beside}
    left = BUDGET - _size(wire) - 2 * _LIST
    writers = []
    for number, (mesh_id, mesh) in enumerate(meshes.items()):
        writer = _Writer(mesh_id, mesh)
        size = _size(writer.wire) + 3 * _LIST
        if size > left:
            wire["left_out"] = len(meshes) - number
            break
        left -= size
        wire["meshes"].append(writer.wire)
        writers.append(writer)
    # The mesh that has used least comes next.
    turns = [(0, number) for number in range(len(writers))]
    offers = [writer.offers() for writer in writers]
    while turns:
        used, number = heapq.heappop(turns)
        offer = next(offers[number], None)
        if offer is not None and offer[0] <= left:
            size, put = offer
            put()
            left -= size
            heapq.heappush(turns, (used + size, number))
    for writer in writers:
        writer.wire["left_out"] = writer.left_out
    return wire


class _Writer:
    """Writes one mesh part by part."""

    def __init__(self, mesh_id: str, mesh: MeshStacks) -> None:
        self._mesh = mesh
        self._places = len(mesh.without) + sum(tree.root.places() for tree in mesh.trees.values())
        self._told = 0
        self._labels = _Labels(mesh.shape)
        self.wire: dict[str, Any] = {
            "mesh_id": mesh_id,
            "name": mesh.name,
            "asked": len(mesh.asked),
            "answered": self._labels.set(mesh.answered),
            "waiting": self._labels.set(mesh.waiting()),
            "culprits": self._labels.set(mesh.culprits()),
            "without": [],
            "trees": [],
            "left_out": 0,
        }

    @property
    def left_out(self) -> int:
        """The number of places that are not included."""
        return self._places - self._told

    def offers(self) -> Iterator[_Offer]:
        """Yield the parts, the most important first. Each must be put in its place before the next one is made."""
        entries = sorted(self._mesh.without.items(), key=lambda entry: -len(entry[1]))
        for (kind, why), ranks in entries:
            short = why if len(why) <= _WHY else why[:_WHY] + " ..."
            yield self._offer({"kind": kind, "why": short, **self._labels.set(ranks)}, self.wire["without"], 1)
        # A parent never has fewer ranks than a child, so it comes before it.
        waiting: list[tuple[int, int, int, Node, dict[str, Any], list[Any]]] = []
        number = 0
        for tree in self._mesh.trees.values():
            facts = {"kind": tree.kind, "label": tree.label}
            entry = (_KINDS.index(tree.kind), -len(tree.root.ranks), number, tree.root, facts, self.wire["trees"])
            heapq.heappush(waiting, entry)
            number += 1
        while waiting:
            order, _, _, top, facts, place = heapq.heappop(waiting)
            chain = top.chain()
            node = chain[-1]
            plain: dict[str, Any] = {
                **facts,
                "frames": [_frame(each) for each in chain if each.function],
                **self._labels.set(node.ranks),
                "children": [],
                "classes": [self._leaf(leaf) for leaf in node.ordered_leaves()],
            }
            yield self._offer(plain, place, len(node.leaves))
            for child in node.ordered():
                heapq.heappush(waiting, (order, -len(child.ranks), number, child, {}, plain["children"]))
                number += 1

    def _offer(self, part: dict[str, Any], place: list[Any], places: int) -> _Offer:
        def put() -> None:
            place.append(part)
            self._told += places

        return _size(part) + _LIST, put

    def _leaf(self, leaf: Leaf) -> dict[str, Any]:
        names = sorted(leaf.names)
        return {
            "state": leaf.state,
            "holder": leaf.holder,
            "source": leaf.source,
            **self._labels.set(leaf.ranks),
            "since": list(leaf.since or ()),
            "cpu": list(leaf.cpu or ()),
            "names": names[:_NAMES] + ["..."] * (len(names) > _NAMES),
            "endpoints": sorted(leaf.endpoints)[:_NAMES],
        }


class _Labels:
    """Sets of ranks as plain data; kept, because the same sets occur again and again."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._all = frozenset(shape.ranks())
        self._known: dict[frozenset[int], dict[str, Any]] = {}

    def set(self, ranks: Iterable[int]) -> dict[str, Any]:
        members = frozenset(ranks)
        if members not in self._known:
            folded = fold_ranks(members)
            text = "all" if members == self._all else fold_coordinates(members, self._shape)
            self._known[members] = {
                "count": len(members),
                "ranks": sorted(members),
                "text": "" if text == folded else text,
            }
        return self._known[members]


def _frame(node: Node) -> dict[str, Any]:
    return {"file": node.file, "function": node.function, "lines": list(node.lines), "hidden": node.hidden}


def _size(part: Any) -> int:
    return len(msgpack.packb(part, unicode_errors="backslashreplace"))

"""Merged stacks (`meshrt.inspect.merged`), as much of them as fits in an answer.

Frames with the same ranks are one node; the largest child comes first. Everything together takes at most `BUDGET`
bytes. The meshes share them evenly; what one of them does not need is used by the others. In a mesh, ranks without a
stack come first, then actors, then tasks and threads; within these, the parts with the most ranks first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgpack
import msgspec

from meshrt.hooks.operations import Data
from meshrt.inspect.classes import Leaf, MeshStacks, Node, Tree
from meshrt.inspect.merged import (
    MergedFrame,
    MergedMesh,
    MergedStacks,
    Missing,
    RankClass,
    RankSet,
    StackNode,
    StackTree,
    Waits,
)
from meshrt.inspect.records import Kind
from meshrt.selection import Shape, fold_coordinates, fold_ranks

__all__ = ["BUDGET", "fitted"]

#: Most bytes of everything as msgpack. A control message holds 1 MiB.
BUDGET = 700_000
#: A list of more than 15 items takes this many more bytes than an empty one.
_LIST = 4
#: Most names of threads, and of endpoints, in a class.
_NAMES = 5
#: Most characters of a reason.
_WHY = 2000
_KINDS: tuple[Kind, ...] = ("actor", "task", "thread")


def fitted(meshes: Mapping[str, MeshStacks], waits: Waits) -> MergedStacks:
    """Return the answers of all meshes, and ``waits`` from the same budget."""
    left = BUDGET - _size(MergedStacks(waits.waits, waits.waits_left_out, waits.unread)) - 2 * _LIST
    writers: list[_Writer] = []
    for mesh_id, mesh in meshes.items():
        writer = _Writer(mesh_id, mesh)
        size = _size(writer.mesh) + 3 * _LIST
        if size > left:
            break
        left -= size
        writers.append(writer)
    # The mesh that has used least comes next.
    turns = [(0, number) for number in range(len(writers))]
    offers = [writer.write() for writer in writers]
    while turns:
        used, number = heapq.heappop(turns)
        offer = next(offers[number], None)
        if offer is not None and offer <= left:
            left -= offer
            heapq.heappush(turns, (used + offer, number))
    written = [msgspec.structs.replace(writer.mesh, left_out=writer.left_out) for writer in writers]
    return MergedStacks(waits.waits, waits.waits_left_out, waits.unread, written, len(meshes) - len(written))


class _Writer:
    """Writes one mesh part by part."""

    def __init__(self, mesh_id: str, mesh: MeshStacks) -> None:
        self._stacks = mesh
        self._places = len(mesh.without) + sum(tree.root.places() for tree in mesh.trees.values())
        self._told = 0
        self._labels = _Labels(mesh.shape)
        self.mesh = MergedMesh(
            mesh_id=mesh_id,
            name=mesh.name,
            asked=len(mesh.asked),
            answered=RankSet(*self._labels.of(mesh.answered)),
            waiting=RankSet(*self._labels.of(mesh.waiting())),
            culprits=RankSet(*self._labels.of(mesh.culprits())),
            without=[],
            trees=[],
        )

    @property
    def left_out(self) -> int:
        """The number of places that are not included."""
        return self._places - self._told

    def write(self) -> Iterator[int]:
        """Yield the bytes of each part, the most important first. Going on after that puts the part in its place."""
        entries = sorted(self._stacks.without.items(), key=lambda entry: -len(entry[1]))
        for (kind, why), ranks in entries:
            short = why if len(why) <= _WHY else why[:_WHY] + " ..."
            missing = Missing(*self._labels.of(ranks), kind=kind, why=short)
            yield _size(missing) + _LIST
            self.mesh.without.append(missing)
            self._told += 1
        # A parent never has fewer ranks than a child, so it comes before it.
        waiting: list[tuple[int, int, int, Node, Tree | StackNode]] = []
        number = 0
        for tree in self._stacks.trees.values():
            heapq.heappush(waiting, (_KINDS.index(tree.kind), -len(tree.root.ranks), number, tree.root, tree))
            number += 1
        while waiting:
            order, _, _, top, above = heapq.heappop(waiting)
            chain = top.chain()
            node = chain[-1]
            part = StackNode(
                *self._labels.of(node.ranks),
                frames=[_frame(each) for each in chain if each.function],
                children=[],
                classes=[self._class(leaf) for leaf in node.ordered_leaves()],
            )
            if isinstance(above, Tree):
                part = whole = StackTree(**msgspec.structs.asdict(part), kind=above.kind, label=above.label)
                yield _size(whole) + _LIST
                self.mesh.trees.append(whole)
            else:
                yield _size(part) + _LIST
                above.children.append(part)
            self._told += len(node.leaves)
            for child in node.ordered():
                heapq.heappush(waiting, (order, -len(child.ranks), number, child, part))
                number += 1

    def _class(self, leaf: Leaf) -> RankClass:
        names = sorted(leaf.names)
        return RankClass(
            *self._labels.of(leaf.ranks),
            state=leaf.state,
            holder=leaf.holder,
            source=leaf.source,
            since=list(leaf.since or ()),
            cpu=list(leaf.cpu or ()),
            names=names[:_NAMES] + ["..."] * (len(names) > _NAMES),
            endpoints=sorted(leaf.endpoints)[:_NAMES],
        )


class _Labels:
    """The fields of sets of ranks; kept, because the same sets occur again and again."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._all = frozenset(shape.ranks())
        self._known: dict[frozenset[int], tuple[int, Sequence[int], str]] = {}

    def of(self, ranks: Iterable[int]) -> tuple[int, Sequence[int], str]:
        """Return count, numbers and text."""
        members = frozenset(ranks)
        if members not in self._known:
            folded = fold_ranks(members)
            text = "all" if members == self._all else fold_coordinates(members, self._shape)
            self._known[members] = len(members), sorted(members), "" if text == folded else text
        return self._known[members]


def _frame(node: Node) -> MergedFrame:
    return MergedFrame(node.file, node.function, node.lines, node.hidden)


def _size(part: Data) -> int:
    return len(msgpack.packb(msgspec.to_builtins(part), unicode_errors="backslashreplace"))

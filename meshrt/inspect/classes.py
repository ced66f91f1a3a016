"""The stacks of many ranks as prefix trees: pure data in, pure data out.

One tree for each actor of a mesh (and one for its tasks, one for further threads). A node is a frame, with the ranks
that are in it; where ranks are in different frames, the tree branches. A leaf is a class: ranks with the same frames in
the same state. The frames' lines count, except that of the innermost one of a running thread: it moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from meshrt.inspect.merged import NoAnswer
from meshrt.inspect.records import Kind
from meshrt.program.words import STOPPED
from meshrt.selection import Shape

__all__ = ["Leaf", "MeshStacks", "Node", "Tree"]

#: An actor's class is an outlier if it is at least so many times smaller than the largest one.
_OUTLIER = 3


@dataclass(slots=True)
class Leaf:
    """Ranks that are (or run) at the same place."""

    state: str
    holder: str = ""
    source: str = ""
    ranks: set[int] = field(default_factory=set)
    #: Seconds that they have been there: least and most.
    since: tuple[float, float] | None = None
    #: Share of a processor, 0.0 to 1.0: least and most.
    cpu: tuple[float, float] | None = None
    #: Names of the threads or tasks.
    names: set[str] = field(default_factory=set)
    endpoints: set[str] = field(default_factory=set)

    def add(self, ranks: Iterable[int], since: Iterable[float], cpu: Iterable[float]) -> None:
        """Add ranks.

        Args:
            since: For how many seconds each has been there.
            cpu: The share of a processor that each uses, 0.0 to 1.0.
        """
        self.ranks.update(ranks)
        self.since = _span(self.since, since)
        self.cpu = _span(self.cpu, cpu)


@dataclass(slots=True)
class Node:
    """A frame, and the ranks that are in it."""

    file: str = ""
    function: str = ""
    #: Lowest and highest line: they differ only below a running thread.
    lines: tuple[int, int] = (0, 0)
    hidden: bool = False
    ranks: set[int] = field(default_factory=set)
    #: By file, function, line and whether that moves.
    children: dict[tuple[str, str, int, bool], Node] = field(default_factory=dict)
    leaves: dict[tuple[str, str, str], Leaf] = field(default_factory=dict)

    def ordered(self) -> list[Node]:
        """Return the children, the one with the most ranks first."""
        return sorted(self.children.values(), key=lambda node: (-len(node.ranks), min(node.ranks), node.lines))

    def ordered_leaves(self) -> list[Leaf]:
        """Return the leaves, the one with the most ranks first."""
        return sorted(self.leaves.values(), key=lambda leaf: (-len(leaf.ranks), min(leaf.ranks), leaf.state))

    def chain(self) -> list[Node]:
        """Return this node and the nodes below it, down to the first branch or leaf: all have the same ranks."""
        found = [self]
        while not found[-1].leaves and len(found[-1].children) == 1:
            found += found[-1].children.values()
        return found

    def together(self, leaf: Leaf) -> int:
        """Return how many ranks a leaf of this node has, with those that the user has stopped at the same place."""
        stopped = [each for each in self.leaves.values() if each.state == STOPPED and not each.holder]
        return len(leaf.ranks.union(*(each.ranks for each in stopped)))

    def places(self) -> int:
        """Return the number of leaves here and below."""
        return len(self.leaves) + sum(child.places() for child in self.children.values())

    def classes(self) -> list[tuple[Node, Leaf]]:
        """Return all leaves here and below, with the node of each."""
        found = [(self, leaf) for leaf in self.leaves.values()]
        for child in self.children.values():
            found += child.classes()
        return found


@dataclass(slots=True)
class Tree:
    """The stacks of one actor, of its tasks or of further threads."""

    kind: Kind
    label: str
    root: Node = field(default_factory=Node)

    def outliers(self) -> list[tuple[Node, Leaf]]:
        """Return the classes of an actor that are much smaller than its largest one, in the order of their ranks."""
        classes = self.root.classes()
        if self.kind != "actor" or not classes:
            return []
        _, most = max(classes, key=lambda each: len(each[1].ranks))
        # Ranks in the debugger, while most are not, were stopped there by the user; an exception is another matter.
        # This says nothing of the other ranks: those that were at one place with them count together with them.
        suspects = [
            (node, leaf) for node, leaf in classes if leaf.state != STOPPED or leaf.holder or most.state == STOPPED
        ]
        few = [(node, leaf) for node, leaf in suspects if node.together(leaf) * _OUTLIER <= len(most.ranks)]
        return sorted(few, key=lambda each: min(each[1].ranks))


@dataclass(slots=True)
class MeshStacks:
    """The answers of one mesh."""

    name: str
    shape: Shape
    asked: set[int]
    #: The actors whose places are compared to find culprits; empty: all.
    compared: frozenset[str] = frozenset()
    answered: set[int] = field(default_factory=set)
    trees: dict[tuple[Kind, str], Tree] = field(default_factory=dict)
    #: Why ranks have no stack: kind and text -> ranks.
    without: dict[tuple[NoAnswer, str], set[int]] = field(default_factory=dict)
    #: The actor of the main thread, as told by any rank; "": not known yet.
    first_actor: str = ""

    def waiting(self) -> set[int]:
        """Return the ranks of which nothing is known yet."""
        return self.asked - self.answered - {rank for ranks in self.without.values() for rank in ranks}

    def culprits(self) -> set[int]:
        """Return the ranks that are not where the others are: outliers, and those that are silent or gone."""
        trees = [tree for tree in self.trees.values() if not self.compared or tree.label in self.compared]
        found = {rank for tree in trees for _, leaf in tree.outliers() for rank in leaf.ranks}
        for (kind, _), ranks in self.without.items():
            if kind != "refused":
                found |= ranks
        return found if found < self.asked else set()


def _span(known: tuple[float, float] | None, values: Iterable[float]) -> tuple[float, float] | None:
    found = [*(known or ()), *values]
    return (min(found), max(found)) if found else None

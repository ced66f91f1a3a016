"""Merged stacks (`meshrt.inspect.merged`) as text.

::

    64 ranks of mesh1, 63 answered
    trainer
      63/64  0-50,52-63                 train  main.py:88
                                        step  main.py:41
      60/64  0-16,19-41,43-50,52-63     |- allreduce  comm.py:112
                                        |  recv  chan.py:77    blocked 43 s in self.sock.recv
                                        |    data = self.sock.recv(n)
       2/64  17-18                      |- next  data.py:30
                                        ...
      likely culprits: 17-18,42,51 (at another place than the other 60)

Ranks are shown where they change: a line without them belongs to those of the line above.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from meshrt.inspect.merged import MergedFrame, MergedMesh, MergedStacks, RankClass, RankSet, StackNode, StackTree
from meshrt.inspect.shortening import short_path
from meshrt.inspect.waittext import unread_lines, wait_lines
from meshrt.program.words import BLOCKED, IDLE, RUNNING, STOPPED
from meshrt.selection import fold_ranks
from meshrt.show.text import broken, cut

__all__ = ["render_stacks"]

#: Most columns of the ranks, before the frames.
_RANKS = 34
#: What a line begins with that goes on with the one above.
_FURTHER = "    "
#: With fewer columns beside the ranks, these have lines of their own; and the columns that a line takes at least.
_NARROW, _LEAST = 40, 10
#: The branches of a tree, and what is below them.
_BESIDE = str.maketrans("├└", "│ ")

N = TypeVar("N", bound=StackNode)
#: Stack frames from the outermost one; and these, with what is done there.
_Path = tuple[MergedFrame, ...]
_Place = tuple[object, ...]

_STATES = {IDLE: "waits for messages", STOPPED: "stopped in the debugger", "busy": "in C code"}


def render_stacks(
    stacks: MergedStacks,
    *,
    source: Callable[[str, int], str] = linecache.getline,
    once: bool = False,
    columns: int | None = None,
) -> str:
    """Return merged stacks as text.

    Args:
        source: Returns the source line of (file, line), or "": shown below the innermost frames.
        once: Show each place of an actor once. Of calls of concurrent endpoints one is shown for the actor, and the
            others as tasks: those that are at the same place are left out.
        columns: Those of the terminal: longer lines are broken between words. None: there is no limit.
    """
    lines = [line for mesh in stacks.meshes for line in _Mesh(mesh, source, columns, once=once).lines()]
    further = unread_lines(stacks)
    waits = wait_lines(stacks)
    if waits:
        further += ["who waits for whom", *(f"  {line}" for line in waits)]
    if stacks.script:
        further.append(f"all ranks are idle: the script is at {stacks.script}")
    if stacks.left_out:
        further.append(f"{_count(stacks.left_out, 'further mesh', 'es')} left out: name an actor or fewer ranks")
    return "\n".join([*lines, *(part for line in further for part in broken(line, columns, _FURTHER))])


class _Mesh:
    """The text of one mesh."""

    def __init__(self, mesh: MergedMesh, source: Callable[[str, int], str], columns: int | None, *, once: bool) -> None:
        self._mesh = mesh
        self._columns = columns
        self._once = once
        self._source = source
        self._total = mesh.asked
        self._digits = len(str(self._total))
        #: Ranks, what is beside them, and whether that stays in one line.
        self._rows: list[tuple[str, str, bool]] = []
        self._before = ""

    def lines(self) -> Iterable[str]:
        mesh = self._mesh
        head = f"{_count(self._total, 'rank')} of {mesh.name}"
        answered = mesh.answered.count
        yield f"{head}, {answered} answered" if answered < self._total else head
        actors = {tree.label: tree for tree in mesh.trees if tree.kind == "actor" and self._once}
        for tree in mesh.trees:
            shown = _beside(tree, actors[tree.label]) if tree.kind == "task" and tree.label in actors else tree
            if shown is not None:
                yield from self._tree(shown)
        for entry in mesh.without:
            yield from broken(f"  {self._label(entry)}: {entry.why}", self._columns, _FURTHER)
        if mesh.waiting.count:
            yield f"  {self._label(mesh.waiting)}: no answer yet"
        if mesh.left_out:
            yield f"  {_count(mesh.left_out, 'further place')} left out: name an actor or fewer ranks"
        culprits = mesh.culprits
        if 0 < culprits.count < self._total:  # of stacks that were narrowed to them, there are no others
            others = self._total - culprits.count
            where = f"at another place than the other {others if others > 1 else 'one'}"
            yield from broken(f"  likely culprits: {_set(culprits)} ({where})", self._columns, _FURTHER)

    def _tree(self, tree: StackTree) -> Iterable[str]:
        label = tree.label
        yield {"actor": label, "task": f"{label}, tasks", "thread": f"thread {label}"}[tree.kind]
        self._rows = []
        self._before = ""
        self._node(tree, "", "")
        longest = max((len(label) for label, _, _ in self._rows), default=0)
        width = min(longest, _RANKS + 2 * self._digits + 3)
        if self._columns is not None and self._columns - width - 4 < _NARROW:
            width = 0
        for label, text, whole in self._rows:
            if len(label) > width:
                yield from broken(f"  {label}", self._columns, _FURTHER)
                label = ""
            for part in self._fitting(text, width + 4, whole):
                yield f"  {label:<{width}}  {part}".rstrip()
                label = ""

    def _fitting(self, text: str, before: int, whole: bool) -> list[str]:
        """Return what is beside the ranks, in lines that fit behind so many columns; ``whole``: in one, cut."""
        if self._columns is None:
            return [text]
        room = max(_LEAST, self._columns - before)
        if whole:
            return [cut(text, room)]
        # What goes on in the next line is to the right of the branches.
        indent = text[: len(text) - len(text.lstrip("│├└ "))].translate(_BESIDE) + _FURTHER
        return broken(text, room, indent)

    def _below(self, node: StackNode, indent: str) -> None:
        """Add the rows of everything below ``node``, with branches if there are several parts."""
        below: list[RankClass | StackNode] = [*node.classes, *node.children]
        parts = sorted(below, key=lambda part: -part.count)
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            first, rest = (indent, indent)
            if len(parts) > 1:
                first, rest = (indent + ("└ " if last else "├ "), indent + ("  " if last else "│ "))
            self._part(part, first, rest)

    def _part(self, part: RankClass | StackNode, first: str, rest: str) -> None:
        if isinstance(part, RankClass):
            self._row(part, first + _about(part))
        else:
            self._node(part, first, rest)

    def _node(self, node: StackNode, first: str, rest: str) -> None:
        frames, children, classes = node.frames, node.children, node.classes
        alone = bool(frames) and not children and len(classes) == 1
        for index, frame in enumerate(frames):
            low, high = frame.lines
            lines = str(low) if low == high else f"{low}-{high}"
            text = frame.function
            if frame.file:
                text += f"  {short_path(frame.file)}:{lines}"
            if index == len(frames) - 1 and not children and len(classes) <= 1:
                # Parts below that are not in the data were left out.
                text += f"    {_about(classes[0])}" if alone else "    ..."
            self._row(node, (rest if index else first) + text)
        if not alone:
            self._below(node, rest)
            return
        file, (low, high) = frames[-1].file, frames[-1].lines
        code = self._source(file, low).strip() if file and low == high else ""
        if code:
            self._row(node, f"{rest}    {code}", whole=True)

    def _row(self, part: RankSet, text: str, *, whole: bool = False) -> None:
        label = self._label(part)
        self._rows.append(("" if label == self._before else label, text, whole))
        self._before = label

    def _label(self, part: RankSet) -> str:
        return f"{part.count:>{self._digits}}/{self._total}  {_set(part)}"


def _beside(tasks: StackTree, actor: StackTree) -> StackTree | None:
    """Return the stacks of an actor's tasks without those that are shown for the actor; None: nothing is left."""
    known = dict(_places(actor, ()))

    def left(node: N, above: _Path) -> N | None:
        path = (*above, *node.frames)
        children = [below for child in node.children if (below := left(child, path)) is not None]
        classes = [each for each in node.classes if not known.get(_place(path, each), frozenset()) >= set(each.ranks)]
        return replace(node, children=children, classes=classes) if children or classes else None

    return left(tasks, ())


def _places(node: StackNode, above: _Path) -> Iterator[tuple[_Place, frozenset[int]]]:
    """Yield all places of a node and below it, with their ranks."""
    path = (*above, *node.frames)
    for each in node.classes:
        yield _place(path, each), frozenset(each.ranks)
    for child in node.children:
        yield from _places(child, path)


def _place(path: _Path, leaf: RankClass) -> _Place:
    return tuple((frame.file, frame.function, *frame.lines) for frame in path), leaf.state, leaf.holder, leaf.source


def _about(leaf: RankClass) -> str:
    words = _STATES.get(leaf.state, leaf.state)
    if leaf.state == BLOCKED and leaf.since:
        words += f" {_span(_duration, leaf.since)}"
    if leaf.holder:
        words += f", {leaf.holder}" if leaf.state == IDLE else f" in {leaf.holder}"
    if leaf.state == RUNNING and leaf.cpu and leaf.cpu[1] > 0:
        words += f", {_span(_percent, leaf.cpu)} CPU"
    return f"{words} <{leaf.source}>" if leaf.source else words


def _span(text: Callable[[float], str], span: Sequence[float]) -> str:
    least, most = map(text, span)
    return least if least == most else f"{least} - {most}"


def _set(part: RankSet) -> str:
    ranks, text = fold_ranks(part.ranks), part.text
    return f"{ranks} ({text})" if part.count == 1 and text not in ("", "all") else text or ranks


def _count(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}" + ("" if count == 1 else plural)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "< 1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"

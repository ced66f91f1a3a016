"""The stacks of many ranks, merged. Pure: groups of answers in, trees (`meshrt.inspect.classes`) or an answer out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from meshrt.collectives.facts import WorldFacts
from meshrt.collectives.late import add_collectives
from meshrt.hooks.facts import Answered, Unanswered, UnreadError
from meshrt.inspect.classes import Leaf, MeshStacks, Node, Tree
from meshrt.inspect.faults import records_of
from meshrt.inspect.fitting import fitted
from meshrt.inspect.merged import MergedStacks, Waits
from meshrt.inspect.records import Record, Threads, Times, names_thread
from meshrt.inspect.shortening import short_path
from meshrt.inspect.standstill import Standstill, reached, standstill
from meshrt.inspect.visibility import own_index
from meshrt.inspect.waittext import doing, waits_of
from meshrt.program.groups import by_key
from meshrt.program.waits import SCRIPT, Key, Waiter, WaitGraph
from meshrt.program.words import IDLE, NOT_RUNNING, RUNNING, silence, why_unanswered
from meshrt.selection import Shape

__all__ = ["StackAnswer", "Stacks", "innermost"]

#: Returns the names of a rank's further actors, by the ident of their thread.
Actors = Callable[[str, int], Mapping[int, str]]

StackAnswer = Answered[Threads, Times] | Unanswered
"""A group of answers to `meshrt.inspect.records.ReadStacks`."""


class Stacks:
    """Merges the answers to `meshrt.inspect.records.ReadStacks`, in any order.

    Args:
        verbose: Include the runtime's own frames, if the answers have them.
        thread: The name of a thread: only its records are merged; "": all.
        actors: As `meshrt.inspect.root.Activity.actors`.
        waits: The known waits of ranks that are not asked.
    """

    def __init__(
        self,
        *,
        verbose: bool = False,
        thread: str = "",
        actors: Actors = lambda mesh_id, rank: {},
        waits: WaitGraph | None = None,
    ) -> None:
        self._verbose = verbose
        self._thread = thread
        self._actors = actors
        self.meshes: dict[str, MeshStacks] = {}
        self.waits = WaitGraph() if waits is None else waits
        #: Errors that the script has not read.
        self.unread: Sequence[UnreadError] = ()
        self._instead: dict[Key, Record] = {}
        self._worlds: dict[str, dict[int, WorldFacts]] = {}

    def expect(self, mesh_id: str, name: str, shape: Shape, ranks: Iterable[int], compared: Iterable[str] = ()) -> None:
        """Set which ranks of a mesh are asked; answers of others are ignored.

        Args:
            compared: The actors whose places tell which ranks are not where the others are; (): all.
        """
        self.meshes[mesh_id] = MeshStacks(name, shape, set(ranks), frozenset(compared))

    def gone(self, mesh_id: str, rank: int, how: str) -> None:
        """Take in that a rank has ended."""
        self.add(Unanswered(mesh_id, (rank,), "gone", how))

    def instead(self, mesh_id: str, rank: int, record: Record) -> None:
        """Set what replaces the record of an actor of a rank, except for its name. Before `add`."""
        self._instead[mesh_id, rank, record.actor] = record

    def add(self, group: StackAnswer) -> None:
        """Take in one group of a report; of ranks that were not asked, only their waits."""
        self._note(group)
        mesh = self.meshes.get(group.mesh_id)
        ranks = set(group.ranks) & mesh.asked if mesh is not None else set()
        if mesh is None or not ranks:
            return
        if isinstance(group, Answered):
            mesh.answered |= ranks
            for index, record in enumerate(group.same.threads):
                same = set(ranks)
                for rank in sorted(ranks) if record.kind == "actor" and self._instead else ():
                    known = self._instead.get((group.mesh_id, rank, record.actor))
                    if known is not None:
                        same.discard(rank)
                        self._add_record(mesh, msgspec.structs.replace(known, name=record.name), {rank})
                if same:
                    times = [each for rank, each in group.per.items() if rank in same]
                    since, cpu = ([each.since for each in times], [each.cpu for each in times])
                    self._add_record(mesh, record, same, _at(since, index), _at(cpu, index))
                if record.kind == "actor" and record.name == "MainThread":
                    mesh.first_actor = record.actor
        elif group.kind == "silent":
            alike = by_key((tuple(self._actors(group.mesh_id, rank).items()), rank) for rank in ranks)
            for actors, members in alike.items():
                self._add_silent(mesh, group, set(members), dict(actors))
        else:
            mesh.without.setdefault((group.kind, group.why), set()).update(ranks)

    def _note(self, group: StackAnswer) -> None:
        """Take in the waits of ranks."""
        if isinstance(group, Unanswered):
            if group.kind != "refused":
                why = f"{'ended' if group.kind == 'gone' else 'not answering'}: {why_unanswered(group)}"
                self.waits.ranks.update({(group.mesh_id, rank): (group.kind, why) for rank in group.ranks})
            return
        for rank, times in group.per.items():
            if times.world is not None:
                self._worlds.setdefault(group.mesh_id, {})[rank] = times.world
        for index, record in enumerate(group.same.threads):
            if record.kind != "actor":
                continue
            words = doing(record)
            for rank in group.ranks:
                # The waits noted for a running actor are over.
                waits = group.per[rank].waits_of(index) if record.state in NOT_RUNNING and rank in group.per else ()
                self.waits.nodes[group.mesh_id, rank, record.actor] = Waiter(record.state, words, waits, record.beside)

    def _add_silent(self, mesh: MeshStacks, group: Unanswered, ranks: set[int], actors: Mapping[int, str]) -> None:
        records = records_of(group.stack, verbose=self._verbose, actors=actors)
        for record in records:
            if record.kind == "actor" and not record.actor:
                record = msgspec.structs.replace(record, actor=mesh.first_actor or "main thread")
            self._add_record(mesh, record, ranks)
        why = f"does not answer: {silence(group.state)}" if group.state else silence(group.state)
        if group.state == "busy" and not records:
            why += "; its stack is not known"
        mesh.without.setdefault(("silent", why), set()).update(ranks)

    def _add_record(
        self, mesh: MeshStacks, record: Record, ranks: set[int], since: Iterable[float] = (), cpu: Iterable[float] = ()
    ) -> None:
        if self._thread and not _is_thread(record, self._thread):
            return
        label = _without_number(record.name) if record.kind == "thread" else record.actor
        tree = mesh.trees.setdefault((record.kind, label), Tree(record.kind, label))
        frames = [frame for frame in record.frames if self._verbose or not frame.hidden]
        node = tree.root
        node.ranks |= ranks
        for index, frame in enumerate(frames):
            moves = record.state == RUNNING and index == len(frames) - 1
            key = (frame.file, frame.function, 0 if moves else frame.line, moves)
            child = node.children.get(key)
            if child is None:
                lines = (frame.line, frame.line)
                child = node.children[key] = Node(frame.file, frame.function, lines, frame.hidden)
            child.lines = (min(child.lines[0], frame.line), max(child.lines[1], frame.line))
            child.ranks |= ranks
            node = child
        facts = (record.state, record.holder, record.source)
        leaf = node.leaves.setdefault(facts, Leaf(*facts))
        leaf.add(ranks, since, cpu)
        leaf.names.add(record.name)
        leaf.endpoints.add(record.endpoint)

    def answer(self) -> MergedStacks:
        """Return everything, as much of it as fits in an answer."""
        add_collectives(self.waits, self._worlds)
        names = {mesh_id: mesh.name for mesh_id, mesh in self.meshes.items()}

        # Include ranks that are not asked, if waits lead to them: what blocks the others may be there.
        shown = reached(self.waits, filter(self._is_asked, self.waits.nodes)) | {SCRIPT}
        waits = Waits() if self._thread else waits_of(self.waits, names, shown.__contains__, self.unread)
        return fitted(self.meshes, waits)

    def standstill(self, keys: Iterable[Key]) -> Standstill | None:
        """Return what blocks actors of ranks that do not answer, as far as the answers show it."""
        add_collectives(self.waits, self._worlds)
        return standstill(self.waits, {mesh_id: mesh.name for mesh_id, mesh in self.meshes.items()}, keys)

    def is_idle(self) -> bool:
        """Whether all actors wait for messages, and the script for none of them, as far as is known."""
        trees = [tree for mesh in self.meshes.values() for tree in mesh.trees.values() if tree.kind == "actor"]
        leaves = [leaf for tree in trees for _, leaf in tree.root.classes()]
        return SCRIPT not in self.waits.nodes and all(leaf.state == IDLE for leaf in leaves)

    def _is_asked(self, key: Key) -> bool:
        return key[0] in self.meshes and key[1] in self.meshes[key[0]].asked


def _at(rows: Iterable[Sequence[float]], index: int) -> list[float]:
    return [row[index] for row in rows if index < len(row)]


def _without_number(name: str) -> str:
    """``Thread-7 (load)`` -> ``load``, ``pool-0_3`` -> ``pool``: the same thread has other numbers on other ranks."""
    target = re.fullmatch(r"Thread-\d+ \((.+)\)", name)
    return target[1] if target else re.sub(r"[-_ ]*\d+", "", name) or name


def _is_thread(record: Record, name: str) -> bool:
    """Whether a record is that of the thread that a user calls ``name``."""
    return record.kind == "thread" and names_thread(name, record.name)


def innermost(
    group: StackAnswer, rank: int, actor: str, thread: str = "", actors: Mapping[int, str] = MappingProxyType({})
) -> tuple[str, float, str]:
    """Return where an actor of a rank is by one group of answers, for how many seconds, and its state.

    The text names the call that it is in, if that is known: ``"sock.recv at receive chan.py:77"``. It is "" if the
    actor is not in user code, or nothing is known.

    Args:
        thread: The name of another thread of that rank, which is looked up instead.
        actors: The names of further actors of the rank, by the ident of their thread.
    """
    if isinstance(group, Answered):
        records, times, known = group.same.threads, group.per.get(rank, Times()), actor
    else:
        records, times, known = records_of(group.stack, actors=actors), Times(), ""
        if actor in actors.values():
            known = actor
    for index, record in enumerate(records):
        shown = [frame for frame in record.frames if not frame.hidden]
        meant = _is_thread(record, thread) if thread else record.kind == "actor" and record.actor == known
        if meant and shown:
            frame = shown[own_index([frame.file for frame in shown])]
            inside = f"{record.holder} at " if record.holder else ""
            since = times.since[index] if index < len(times.since) else 0.0
            return f"{inside}{frame.function} {short_path(frame.file)}:{frame.line}", since, record.state
    return "", 0.0, ""

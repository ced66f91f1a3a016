"""The stacks of many ranks, merged. Pure: groups of answers in, trees (`meshrt.inspect.classes`) or plain data out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from meshrt.hooks.facts import Group
from meshrt.inspect.classes import Leaf, MeshStacks, Node, Tree
from meshrt.inspect.faults import records_of
from meshrt.inspect.names import names_thread
from meshrt.inspect.plain import to_wire
from meshrt.inspect.shortening import short_path
from meshrt.inspect.standstill import Standstill, reached, standstill
from meshrt.inspect.visibility import own_index
from meshrt.inspect.waits import SCRIPT, Key, Waiter, WaitGraph, waits_from_wire
from meshrt.inspect.waittext import doing, waits_of
from meshrt.program.words import RUNNING, STANDING, silence
from meshrt.selection import Shape

__all__ = ["STACKS", "Stacks", "innermost"]

#: Returns the names of a rank's further actors, by the ident of their thread.
Actors = Callable[[str, int], Mapping[int, str]]
#: The operation that ranks serve.
STACKS = "inspect.stacks"


class Stacks:
    """Merges the answers to ``inspect.stacks``, in any order.

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
        self._instead: dict[tuple[str, int, str], Mapping[str, Any]] = {}

    def expect(self, mesh_id: str, name: str, shape: Shape, ranks: Iterable[int], compared: Iterable[str] = ()) -> None:
        """Set which ranks of a mesh are asked; answers of others are ignored.

        Args:
            compared: The actors whose places tell which ranks are not where the others are; (): all.
        """
        self.meshes[mesh_id] = MeshStacks(name, shape, set(ranks), frozenset(compared))

    def gone(self, mesh_id: str, rank: int, how: str) -> None:
        """Take in that a rank has ended."""
        self.add(Group(mesh_id, (rank,), "gone", how, {}))

    def instead(self, mesh_id: str, rank: int, actor: str, record: Mapping[str, Any]) -> None:
        """Set fields that replace those in the record of an actor of a rank. Before `add`."""
        self._instead[mesh_id, rank, actor] = record

    def add(self, group: Group) -> None:
        """Take in one group of a report; of ranks that were not asked, only their waits."""
        self._note(group)
        mesh = self.meshes.get(group.mesh_id)
        ranks = set(group.ranks) & mesh.asked if mesh is not None else set()
        if mesh is None or not ranks:
            return
        if group.kind == "answered":
            mesh.answered |= ranks
            for index, record in enumerate(group.same["threads"]):
                same = set(ranks)
                for rank in sorted(ranks) if record["kind"] == "actor" and self._instead else ():
                    known = self._instead.get((group.mesh_id, rank, record["actor"]))
                    if known is not None:
                        same.discard(rank)
                        self._add_record(mesh, {**record, **known}, {rank}, (), ())
                if same:
                    per = {rank: values for rank, values in group.per.items() if rank in same}
                    self._add_record(mesh, record, same, _of(per, "since", index), _of(per, "cpu", index))
                if record["kind"] == "actor" and record["name"] == "MainThread":
                    mesh.first_actor = record["actor"]
        elif group.kind == "silent":
            alike: dict[tuple[tuple[int, str], ...], set[int]] = {}
            for rank in ranks:
                alike.setdefault(tuple(self._actors(group.mesh_id, rank).items()), set()).add(rank)
            for actors, members in alike.items():
                self._add_silent(mesh, group.same, members, dict(actors))
        else:
            mesh.without.setdefault((group.kind, str(group.same)), set()).update(ranks)

    def _note(self, group: Group) -> None:
        """Take in the waits of ranks."""
        if group.kind in ("gone", "silent"):
            why = f"gone: {group.same}" if group.kind == "gone" else f"not answering: {silence(group.same['state'])}"
            self.waits.ranks.update({(group.mesh_id, rank): (group.kind, why) for rank in group.ranks})
        for index, record in enumerate(group.same["threads"] if group.kind == "answered" else ()):
            if record["kind"] != "actor":
                continue
            words = doing(record)
            for rank in group.ranks:
                per = group.per.get(rank, {})
                # The waits noted for a running actor are over.
                waits = per["waits"][index] if record["state"] in STANDING and "waits" in per else ()
                self.waits.nodes[group.mesh_id, rank, record["actor"]] = Waiter(
                    record["state"], words, waits_from_wire(waits), record.get("beside", False)
                )

    def _add_silent(self, mesh: MeshStacks, same: Any, ranks: set[int], actors: Mapping[int, str]) -> None:
        records = records_of(same["stack"], verbose=self._verbose, actors=actors) if same["stack"] else []
        for record in records:
            if record["kind"] == "actor":
                record["actor"] = record["actor"] or mesh.first_actor or "main thread"
            self._add_record(mesh, record, ranks, (), ())
        state = same["state"]
        why = f"does not answer: {silence(state)}" if state else silence(state)
        if state == "busy" and not records:
            why += ", and no stack of it is known"
        mesh.without.setdefault(("silent", why), set()).update(ranks)

    def _add_record(
        self, mesh: MeshStacks, record: Mapping[str, Any], ranks: set[int], since: Iterable[float], cpu: Iterable[float]
    ) -> None:
        if self._thread and not _is_thread(record, self._thread):
            return
        kind = record["kind"]
        label = record["actor"] if kind in ("actor", "task") else _without_number(record["name"])
        tree = mesh.trees.setdefault((kind, label), Tree(kind, label))
        frames = [frame for frame in record["frames"] if self._verbose or not frame[3]]
        node = tree.root
        node.ranks |= ranks
        for index, (file, line, function, hidden) in enumerate(frames):
            moves = record["state"] == RUNNING and index == len(frames) - 1
            key = (file, function, 0 if moves else line, moves)
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(file, function, (line, line), hidden)
            child.lines = (min(child.lines[0], line), max(child.lines[1], line))
            child.ranks |= ranks
            node = child
        facts = (record["state"], record["holder"], record.get("source", ""))
        leaf = node.leaves.setdefault(facts, Leaf(*facts))
        leaf.add(ranks, since, cpu)
        leaf.names.add(record["name"])
        leaf.endpoints.add(record["endpoint"])

    def to_wire(self) -> dict[str, Any]:
        """Return everything as plain data for JSON or msgpack: `meshrt.inspect.plain`, `meshrt.inspect.waittext`."""
        names = {mesh_id: mesh.name for mesh_id, mesh in self.meshes.items()}

        # Include ranks that are not asked, if waits lead to them: what blocks the others may be there.
        shown = reached(self.waits, filter(self._is_asked, self.waits.nodes)) | {SCRIPT}
        waits = {} if self._thread else waits_of(self.waits, names, shown.__contains__)
        return to_wire(self.meshes, waits)

    def standstill(self, keys: Iterable[Key]) -> Standstill | None:
        """Return what blocks actors of ranks that do not answer, as far as the answers show it."""
        return standstill(self.waits, {mesh_id: mesh.name for mesh_id, mesh in self.meshes.items()}, keys)

    def _is_asked(self, key: Key) -> bool:
        return key[0] in self.meshes and key[1] in self.meshes[key[0]].asked


def _of(per: Mapping[int, Any], name: str, index: int) -> list[float]:
    return [values[name][index] for values in per.values() if index < len(values[name])]


def _without_number(name: str) -> str:
    """``Thread-7 (load)`` -> ``load``, ``pool-0_3`` -> ``pool``: the same thread has other numbers on other ranks."""
    target = re.fullmatch(r"Thread-\d+ \((.+)\)", name)
    return target[1] if target else re.sub(r"[-_ ]*\d+", "", name) or name


def _is_thread(record: Mapping[str, Any], name: str) -> bool:
    """Whether a record is that of the thread that a user calls ``name``."""
    return record["kind"] == "thread" and names_thread(name, record["name"])


def innermost(
    group: Group, rank: int, actor: str, thread: str = "", actors: Mapping[int, str] = MappingProxyType({})
) -> tuple[str, float, str]:
    """Return where an actor of a rank is by one group of answers, for how many seconds, and its state.

    The text names the call that it is in, if that is known: ``"sock.recv at receive chan.py:77"``. It is "" if the
    actor is not in user code, or nothing is known.

    Args:
        thread: The name of another thread of that rank, which is looked up instead.
        actors: The names of further actors of the rank, by the ident of their thread.
    """
    records: list[dict[str, Any]] = []
    if group.kind == "answered":
        records = group.same["threads"]
    elif group.kind == "silent" and group.same["stack"]:
        records = records_of(group.same["stack"], actors=actors)
    for index, record in enumerate(records):
        shown = [frame for frame in record["frames"] if not frame[3]]
        if thread:
            meant = _is_thread(record, thread)
        else:
            known = actor if actor in actors.values() or group.kind == "answered" else ""
            meant = record["kind"] == "actor" and record["actor"] == known
        if meant and shown:
            file, line, function, _ = shown[own_index([frame[0] for frame in shown])]
            since = _of({rank: group.per[rank]}, "since", index) if rank in group.per else []
            inside = f"{record['holder']} at " if record["holder"] else ""
            return f"{inside}{function} {short_path(file)}:{line}", since[0] if since else 0.0, record["state"]
    return "", 0.0, ""

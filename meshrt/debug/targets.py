"""Root side: which sessions a person means by an actor's name and a selection of ranks.

Selections are evaluated by `meshrt.selection`, once for every view through which ranks of the actor were called:
numbers are base ranks, dims are those of the view, and those of the whole mesh where the view does not have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshrt.debug.protocol import STOPPED, SessionKey, address
from meshrt.debug.sessions import Session, SessionTable
from meshrt.errors import SelectionError, UsageError
from meshrt.hooks import RootServices
from meshrt.selection import Selection, Shape, parse, resolve
from meshrt.selection.grammar.ast import And, Dim, Node, Not, Or
from meshrt.selection.grammar.complaints import near_miss

__all__ = ["Actor", "MeshFacts", "Selected", "Targets"]

_NAME = re.compile(r"([\w-]+)(?:@([\w.-]+))?(?:/([\w.-]+))?")


@dataclass(frozen=True, slots=True)
class MeshFacts:
    """What is known of one running mesh."""

    mesh_id: str
    name: str
    shape: Shape
    hosts: dict[int, str]
    pids: dict[int, int]
    alive: tuple[int, ...]
    actors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Actor:
    """One actor of one mesh, and the thread of it that is meant ("": where its endpoints run)."""

    mesh: MeshFacts
    name: str
    thread: str
    #: How it is written where that is needed to tell it from others: ``debugee``, ``debugee@k3f``.
    label: str


@dataclass(frozen=True, slots=True)
class Selected:
    """What a selection came to: sessions that are there, and ranks of the selection that have none."""

    actor: Actor
    sessions: tuple[Session, ...]
    missing: tuple[int, ...]


class _Facts:
    """What the grammar's states and places mean here. Base ranks of one actor."""

    def __init__(self, sessions: dict[int, Session], mesh: MeshFacts, gone: Iterable[int]) -> None:
        self._sessions = sessions
        self._mesh = mesh
        self._gone = gone

    def in_state(self, word: str) -> Iterable[int]:
        stopped = {rank for rank, session in self._sessions.items() if session.state == STOPPED}
        if word == "stopped":
            return stopped
        if word == "post-mortem":
            return {rank for rank in stopped if self._sessions[rank].reason == "post-mortem"}
        if word == "running":
            return set(self._mesh.alive) - stopped
        if word == "dead":
            return set(self._gone)
        raise SelectionError(f"which ranks are {word!r} is not known here", expected=("stopped", "running", "dead"))

    def at(self, file: str, line: int) -> Iterable[int]:
        return {
            rank
            for rank, session in self._sessions.items()
            if session.place.line == line
            and (session.place.file == file or session.place.file.endswith("/" + file.lstrip("./")))
        }


class Targets:
    """Names and selections, against what runs now. On the root's loop."""

    def __init__(self, services: RootServices, table: SessionTable) -> None:
        self._services = services
        self._table = table

    def meshes(self) -> list[MeshFacts]:
        """Return what runs."""
        return [
            MeshFacts(
                mesh_id=str(mesh["mesh_id"]),
                name=str(mesh["name"]),
                shape=Shape.from_wire(mesh["shape"]),
                hosts=dict(mesh["host"]),
                pids=dict(mesh["pid"]),
                alive=tuple(mesh["alive"]),
                actors=tuple(str(actor["name"]) for actor in mesh["actors"]),
            )
            for mesh in self._services.meshes()
        ]

    def actors(self) -> list[Actor]:
        """Return every actor that can be named, those with a stopped thread of their own included."""
        known: dict[tuple[str, str, str], MeshFacts] = {}
        meshes = self.meshes()
        by_id = {mesh.mesh_id: mesh for mesh in meshes}
        for mesh in meshes:
            for name in mesh.actors:
                known[mesh.mesh_id, name, ""] = mesh
        for session in self._table:
            key = session.key
            if key.mesh_id in by_id:
                known[key.mesh_id, key.actor, key.thread] = by_id[key.mesh_id]
        names = [(name, thread) for _, name, thread in known]
        return [
            Actor(mesh, name, thread, address(name, thread, _mesh_name(mesh, meshes) if count > 1 else ""))
            for (_, name, thread), mesh in known.items()
            for count in [names.count((name, thread))]
        ]

    def label(self, key: SessionKey, actors: Sequence[Actor]) -> str:
        """Return how the actor of a session is written."""
        for actor in actors:
            if (actor.mesh.mesh_id, actor.name, actor.thread) == (key.mesh_id, key.actor, key.thread):
                return actor.label
        return address(key.actor, key.thread)

    def actor(self, text: str) -> Actor:
        """Return the actor that ``text`` names; UsageError with what there is instead."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is no name of an actor")
        name, mesh, thread = match[1], match[2] or "", match[3] or ""
        actors = self.actors()
        found = [actor for actor in actors if (actor.name, actor.thread) == (name, thread)]
        if mesh:
            found = [actor for actor in found if mesh in (actor.mesh.mesh_id, actor.mesh.name)]
        if not found:
            raise UsageError(_unknown(text, actors))
        if len(found) > 1:
            stopped = [a for a in found if self._table.of_actor(a.mesh.mesh_id, a.name, a.thread)]
            if len(stopped) != 1:
                labels = " or ".join(actor.label for actor in found)
                raise UsageError(f"{len(found)} meshes have an actor {name!r}; say {labels}")
            found = stopped
        return found[0]

    def select(self, name: str, text: str) -> Selected:
        """Return the sessions of actor ``name`` that the selection ``text`` ("": all ranks) denotes."""
        actor = self.actor(name)
        mesh = actor.mesh
        sessions = self._table.of_actor(mesh.mesh_id, actor.name, actor.thread)
        facts = _Facts(sessions, mesh, self._table.gone_of(mesh.mesh_id))
        selection = parse(text) if text.strip() else None
        views = list(dict.fromkeys(session.view or mesh.shape for session in sessions.values()))
        wanted: set[int] = set()
        reached: set[int] = set()
        problems: list[SelectionError] = []
        for view in views:
            try:
                ranks = _ranks(selection, view, mesh.shape, facts)
            except SelectionError as error:
                problems.append(error)
                continue
            reached.update(ranks)
            wanted.update(rank for rank in ranks if rank in sessions and (sessions[rank].view or mesh.shape) == view)
        if selection is not None and (not reached or not _names_dims(selection.expr)):
            if len(problems) > 0 and len(problems) == len(views):
                raise problems[0]
            # Ranks by number may lie outside every view that is stopped: they are named as not stopped. And where
            # nothing was reached, this says why.
            reached.update(resolve(selection, mesh.shape, facts=facts, allow_empty=bool(reached)))
        missing = reached - set(sessions)
        return Selected(actor, tuple(sessions[rank] for rank in sorted(wanted)), tuple(sorted(missing)))

    def one(self, name: str, text: str) -> Session:
        """Return the one session that ``attach name text`` means."""
        selected = self.select(name, text)
        if len(selected.sessions) == 1 and not selected.missing:
            return selected.sessions[0]
        ranks = [*(session.key.rank for session in selected.sessions), *selected.missing]
        if len(ranks) != 1:
            raise UsageError(f"attach takes one rank, {text!r} are {len(ranks)}")
        rank = ranks[0]
        mesh = selected.actor.mesh
        how = self._table.how_gone(mesh.mesh_id, rank)
        if how:
            raise UsageError(f"{selected.actor.label} rank {rank} is gone: it {how}")
        threads = [session.name for session in self._table.of_rank(mesh.mesh_id, rank) if session.key.actor == name]
        other = f"; a thread of it is: attach {threads[0]} {rank}" if threads else ""
        raise UsageError(f"{selected.actor.label} rank {rank} is not stopped{other}")


def _names_dims(node: Node) -> bool:
    match node:
        case Dim():
            return True
        case Not(operand):
            return _names_dims(operand)
        case And(operands) | Or(operands):
            return any(map(_names_dims, operands))
        case _:
            return False


def _ranks(selection: Selection | None, view: Shape, whole: Shape, facts: _Facts) -> Sequence[int]:
    if selection is None:
        return view.ranks()
    return resolve(selection, view, numbering=whole, facts=facts, allow_empty=True)


def _unknown(text: str, actors: Sequence[Actor]) -> str:
    labels = [actor.label for actor in actors]
    if not labels:
        return f"no actor {text!r}: nothing runs"
    return f"no actor {text!r}{near_miss(text, labels) or ';'} there are: {', '.join(sorted(labels))}"


def _mesh_name(mesh: MeshFacts, meshes: Sequence[MeshFacts]) -> str:
    named = [other for other in meshes if other.name == mesh.name]
    return mesh.name if mesh.name and len(named) == 1 and _NAME.fullmatch(mesh.name) else mesh.mesh_id

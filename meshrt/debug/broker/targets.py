"""Root side: which ranks a person means by an actor's name and a selection.

Selections are evaluated by `meshrt.selection`: numbers are base ranks, dims are those of the whole mesh, whatever has
stopped. Dims that it does not have (``pp`` of a reshaped mesh) are those of the views through which the ranks that
stand were called.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from meshrt.debug.broker.meshes import MeshFacts
from meshrt.debug.broker.sessions import Session, SessionTable
from meshrt.debug.broker.states import Activity, Facts, Held, State, state_of
from meshrt.debug.protocol import RUNNING, SessionKey, address
from meshrt.errors import SelectionError, UsageError
from meshrt.hooks.services import RootServices
from meshrt.selection import Shape, dimensions_of, near_miss, parse, resolve

__all__ = ["Actor", "Selected", "Targets", "mesh_name"]

_NAME = re.compile(r"([\w-]+)(?:@([\w.-]+))?(?:/([\w.-]+))?")


@dataclass(frozen=True, slots=True)
class Actor:
    """One actor of one mesh, and the thread of it that is meant ("": where its endpoints run)."""

    mesh: MeshFacts
    name: str
    thread: str
    #: How it is written where that is needed to tell it from others: ``debugee``, ``debugee@k3f``.
    label: str

    def key(self, rank: int) -> SessionKey:
        """Return the key of one rank of it."""
        return SessionKey(self.mesh.mesh_id, self.name, rank, self.thread)


@dataclass(frozen=True, slots=True)
class Selected:
    """What a selection came to: base ranks, and the sessions of those that have one."""

    actor: Actor
    ranks: tuple[int, ...]
    sessions: Mapping[int, Session]

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that live, without a session."""
        return tuple(rank for rank in self.ranks if rank not in self.sessions and rank not in self.actor.mesh.gone)

    @property
    def gone(self) -> dict[int, str]:
        """The ranks that have ended, and how."""
        return {rank: self.actor.mesh.gone[rank][0] for rank in self.ranks if rank in self.actor.mesh.gone}


class Targets:
    """Names, selections and states, against what runs now. On the root's loop.

    Args:
        activity: What is known of an actor of a running rank, by (mesh id, base rank, actor).
        silent_hosts: Hosts whose agent does not answer, and since when (epoch seconds).
    """

    def __init__(
        self,
        services: RootServices,
        table: SessionTable,
        activity: Callable[[str, int, str], Activity | None] = lambda mesh_id, rank, actor: None,
        silent_hosts: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._services = services
        self._table = table
        self._activity = activity
        self._silent_hosts = silent_hosts

    def without(self, silent_hosts: Mapping[str, float]) -> Targets:
        """Return the same, as it is while the agents of some hosts do not answer, since when (epoch seconds)."""
        return Targets(self._services, self._table, self._activity, silent_hosts) if silent_hosts else self

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
                started=float(mesh["started"]),
                gone={rank: (str(how), float(when)) for rank, (how, when) in mesh["gone"].items()},
                silent={rank: state for rank, (state, _) in silent.items()},
                silent_since={rank: float(since) for rank, (_, since) in silent.items()},
                stopping=bool(mesh["stopping"]),
            )
            for mesh in self._services.meshes()
            for silent in [{**self._of_silent_hosts(mesh), **mesh["silent"]}]
        ]

    def _of_silent_hosts(self, mesh: Mapping[str, Any]) -> dict[int, tuple[str, float]]:
        hosts = self._silent_hosts
        return {rank: ("host", hosts[mesh["host"][rank]]) for rank in mesh["alive"] if mesh["host"][rank] in hosts}

    def silent_for(self, mesh_id: str, rank: int) -> float:
        """Return for how many seconds a rank is known not to answer; 0: it is not known yet."""
        for mesh in self.meshes():
            if mesh.mesh_id == mesh_id and rank in mesh.silent_since:
                return time.time_ns() / 1e9 - mesh.silent_since[rank]
        return 0.0

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
            Actor(mesh, name, thread, address(name, thread, mesh_name(mesh, meshes) if count > 1 else ""))
            for (_, name, thread), mesh in known.items()
            for count in [names.count((name, thread))]
        ]

    def of_key(self, key: SessionKey) -> Actor:
        """Return the actor of a session; UsageError if its mesh has just ended."""
        for actor in self.actors():
            if (actor.mesh.mesh_id, actor.name, actor.thread) == (key.mesh_id, key.actor, key.thread):
                return actor
        raise UsageError(f"the mesh of {address(key.actor, key.thread)} has ended")

    def name_of_rank(self, mesh_id: str) -> str:
        """Return what the ranks of a mesh are called where no actor of theirs is meant; "" if it is being stopped."""
        for mesh in self.meshes():
            if mesh.mesh_id == mesh_id and not mesh.stopping:
                labels = [actor.label for actor in self.actors() if actor.mesh.mesh_id == mesh_id and not actor.thread]
                return labels[0] if len(labels) == 1 else mesh.name or mesh_id
        return ""

    def _only(self) -> Actor:
        actors = [actor for actor in self.actors() if not actor.thread]
        if len(actors) != 1:
            labels = " or ".join(sorted(actor.label for actor in actors))
            raise UsageError(f"which actor? say {labels}, in front of the ranks" if labels else "there is no actor yet")
        return actors[0]

    def label(self, key: SessionKey, actors: Sequence[Actor]) -> str:
        """Return how the actor of a session is written."""
        for actor in actors:
            if (actor.mesh.mesh_id, actor.name, actor.thread) == (key.mesh_id, key.actor, key.thread):
                return actor.label
        return address(key.actor, key.thread)

    def actor(self, text: str, *, any_thread: bool = False, words: Sequence[str] = ()) -> Actor:
        """Return the actor that ``text`` names, or the only one of the mesh that it names; UsageError: what there is.

        Without a name it is the only one that there is.

        Args:
            any_thread: The thread that it names need not have stopped: the ranks know which they have.
            words: What else may have been meant.
        """
        if not text:
            return self._only()
        match = _NAME.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is no name of an actor")
        name, mesh, thread = match[1], match[2] or "", match[3] or ""
        actors = self.actors()
        found = [actor for actor in actors if (actor.name, actor.thread) == (name, thread)]
        if not found and any_thread:
            found = [
                Actor(actor.mesh, name, thread, f"{actor.label}/{thread}")
                for actor in actors
                if (actor.name, actor.thread) == (name, "")
            ]
        if not found and not mesh and not thread:
            found = _of_mesh(name, actors, self.meshes())
        if mesh:
            found = [actor for actor in found if mesh in (actor.mesh.mesh_id, actor.mesh.name)]
        if not found:
            raise UsageError(_unknown(text, actors, words))
        if len(found) > 1:
            stopped = [a for a in found if self._table.of_actor(a.mesh.mesh_id, a.name, a.thread)]
            if len(stopped) != 1:
                labels = " or ".join(actor.label for actor in found)
                raise UsageError(f"{len(found)} meshes have an actor {name!r}; say {labels}")
            found = stopped
        return found[0]

    def bare_name(self, text: str) -> str:
        """Return the name without its mesh in ``text``, of an actor that is there; UsageError otherwise."""
        if any(actor.name == text for actor in self.actors()):
            return text
        return self.actor(text).name

    def states(self, actor: Actor) -> dict[int, State]:
        """Return the state of every rank of an actor."""
        mesh = actor.mesh
        sessions = self._table.of_actor(mesh.mesh_id, actor.name, actor.thread)
        ranks = sessions if actor.thread else mesh.shape.ranks()
        return {
            rank: state_of(
                mesh,
                rank,
                sessions.get(rank),
                self._activity(mesh.mesh_id, rank, actor.name),
                self._table.left(actor.key(rank)),
                self._held(mesh.mesh_id, rank),
                actor.name,
            )
            for rank in ranks
        }

    def _held(self, mesh_id: str, rank: int) -> Held:
        """Return what an IDE does with a rank."""
        held: Held = self._services.tables.get("dap.held", {}).get((mesh_id, rank), Held())
        return held

    def orphans(self, selected: Selected | None) -> dict[tuple[str, int], str]:
        """Return what stands in an IDE that is gone: for mesh and rank the label of an actor there."""
        found: dict[tuple[str, int], str] = {}
        for actor in self.actors() if selected is None else [selected.actor]:
            for rank in actor.mesh.shape.ranks() if selected is None else selected.ranks:
                if self._held(actor.mesh.mesh_id, rank).lost:
                    found.setdefault((actor.mesh.mesh_id, rank), actor.label)
        return found

    def select(self, name: str, text: str, *, any_thread: bool = False) -> Selected:
        """Return the ranks of actor ``name`` that the selection ``text`` ("": all ranks) denotes."""
        return self.select_of(self.actor(name, any_thread=any_thread), text, any_thread=any_thread)

    def select_of(self, actor: Actor, text: str, *, any_thread: bool = False) -> Selected:
        """Return the ranks of ``actor`` that the selection ``text`` ("": all ranks) denotes.

        Args:
            any_thread: As in `actor`; all ranks are all, not those on which the thread has stopped.

        Raises:
            SelectionError: The text is not in the grammar, or what it names does not exist.
        """
        mesh = actor.mesh
        sessions = self._table.of_actor(mesh.mesh_id, actor.name, actor.thread)
        if not text.strip():
            members = sessions if actor.thread and not any_thread else mesh.shape.ranks()
            return Selected(actor, tuple(sorted(members)), sessions)
        facts = Facts(self.states(actor))
        selection = parse(text)
        if dimensions_of(selection) <= set(mesh.shape.labels):
            ranks = resolve(selection, mesh.shape, facts=facts)
            return Selected(actor, tuple(ranks), {rank: sessions[rank] for rank in ranks if rank in sessions})
        views = list(dict.fromkeys(session.shape_in(mesh.shape) for session in sessions.values()))
        wanted: set[int] = set()
        reached: set[int] = set()
        problems: list[SelectionError] = []
        for view in views:
            try:
                ranks = resolve(selection, view, numbering=mesh.shape, facts=facts, allow_empty=True)
            except SelectionError as error:
                problems.append(error)
                continue
            reached.update(ranks)
            wanted.update(rank for rank in ranks if rank in sessions and sessions[rank].shape_in(mesh.shape) == view)
        if not reached:
            if problems and len(problems) == len(views):
                raise problems[0]
            resolve(selection, mesh.shape, facts=facts)  # says why there is none
        found = {rank: sessions[rank] for rank in sorted(wanted)}
        return Selected(actor, tuple(sorted(wanted | (reached - set(sessions)))), found)

    def everywhere(
        self, name: str, text: str, *, any_thread: bool = False, words: Sequence[str] = ()
    ) -> list[Selected]:
        """Return what ``text`` denotes on actor ``name``, or ("") on every actor that has such ranks.

        Args:
            any_thread, words: As in `actor`.

        Raises:
            UsageError: There is no such actor, or none at all.
            SelectionError: No actor has such ranks.
        """
        if name:
            actor = self.actor(name, any_thread=any_thread, words=words)
            return [self.select_of(actor, text, any_thread=any_thread)]
        found = []
        problem: SelectionError | None = None
        for actor in self.actors():
            try:
                found.append(self.select_of(actor, text))
            except SelectionError as error:
                problem = error
        if problem is not None and not found:
            raise problem
        return found

    def one(self, name: str, text: str) -> Session:
        """Return the one session that ``attach name text`` means."""
        selected = self.select(name, text, any_thread=True)
        if len(selected.ranks) != 1:
            raise UsageError(f"attach takes one rank, {text!r} are {len(selected.ranks)}")
        rank = selected.ranks[0]
        session = selected.sessions.get(rank)
        if session is not None and session.state != RUNNING:
            return session
        mesh = selected.actor.mesh
        label = selected.actor.label
        if rank in mesh.gone:
            raise UsageError(f"{label} rank {rank} is gone: it {mesh.gone[rank][0]}")
        threads = [
            session.name
            for session in self._table.of_rank(mesh.mesh_id, rank)
            if session.key.actor == selected.actor.name and session.key.thread and session.state != RUNNING
        ]
        held = self._held(mesh.mesh_id, rank)
        if held.lost:
            raise UsageError(
                f"{label} rank {rank} stands in {held.ide}; continue {label} ranks({rank}) lets it go on without one"
            )
        if held.ide:
            raise UsageError(f"{label} rank {rank} is in {held.ide}: it is stopped, looked at and let go on there")
        other = f"; a thread of it is stopped: attach {threads[0]} {rank}" if threads else ""
        raise UsageError(
            f"{label} rank {rank} {'runs since it was resumed' if session is not None else 'is not stopped'}"
            + (other or f"; to stop it: interrupt {label} ranks({rank})")
        )


def _of_mesh(name: str, actors: Sequence[Actor], meshes: Sequence[MeshFacts]) -> list[Actor]:
    """Return the actor of the mesh that a person names; none if there is no such mesh. UsageError: it has several."""
    named = [mesh.mesh_id for mesh in meshes if name in (mesh.mesh_id, mesh.name)]
    found = [actor for actor in actors if actor.mesh.mesh_id in named and not actor.thread]
    if named and len(found) != 1:
        labels = " or ".join(sorted(actor.label for actor in found))
        raise UsageError(f"mesh {name} has {len(found) or 'no'} actors" + (f"; say {labels}" if found else " yet"))
    return found


def _unknown(text: str, actors: Sequence[Actor], words: Sequence[str] = ()) -> str:
    labels = [actor.label for actor in actors]
    if not labels:
        return f"no actor {text!r}: nothing runs"
    near = near_miss(text, [*labels, *words]) or (f"; a rank is written ranks({text});" if text.isdigit() else ";")
    return f"no actor {text!r}{near} there are: {', '.join(sorted(labels))}"


def mesh_name(mesh: MeshFacts, meshes: Sequence[MeshFacts]) -> str:
    """Return how a mesh is written: its name if that is its alone and can be typed, else its id."""
    named = [other for other in meshes if other.name == mesh.name]
    return mesh.name if mesh.name and len(named) == 1 and _NAME.fullmatch(mesh.name) else mesh.mesh_id

"""Root side: which ranks a person means by an actor's name and a selection.

Selections are evaluated by `meshrt.selection`, once for every view through which ranks of the actor were called:
numbers are base ranks, dims are those of the view, and those of the whole mesh where the view does not have them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meshrt.debug.broker.sessions import Session, SessionTable
from meshrt.debug.broker.states import Activity, Facts, State, state_of
from meshrt.debug.protocol import RUNNING, SessionKey, address
from meshrt.errors import SelectionError, UsageError
from meshrt.hooks import RootServices
from meshrt.selection import Selection, Shape, names_dimensions, near_miss, parse, resolve

__all__ = ["Actor", "MeshFacts", "Selected", "Targets", "mesh_name"]

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
    #: When it was asked for (epoch seconds).
    started: float = 0.0
    #: How and when (epoch seconds) ranks ended.
    gone: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    #: Ranks that live but do not answer: "stopped" or "busy".
    silent: Mapping[int, str] = field(default_factory=dict)
    silent_since: Mapping[int, float] = field(default_factory=dict)
    stopping: bool = False


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
    """

    def __init__(
        self,
        services: RootServices,
        table: SessionTable,
        activity: Callable[[str, int, str], Activity | None] = lambda mesh_id, rank, actor: None,
    ) -> None:
        self._services = services
        self._table = table
        self._activity = activity

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
                silent={rank: state for rank, (state, _) in mesh["silent"].items()},
                silent_since={rank: float(since) for rank, (_, since) in mesh["silent"].items()},
                stopping=bool(mesh["stopping"]),
            )
            for mesh in self._services.meshes()
        ]

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

    def label(self, key: SessionKey, actors: Sequence[Actor]) -> str:
        """Return how the actor of a session is written."""
        for actor in actors:
            if (actor.mesh.mesh_id, actor.name, actor.thread) == (key.mesh_id, key.actor, key.thread):
                return actor.label
        return address(key.actor, key.thread)

    def actor(self, text: str, *, any_thread: bool = False, words: Sequence[str] = ()) -> Actor:
        """Return the actor that ``text`` names; UsageError with what there is instead.

        Args:
            any_thread: The thread that it names need not have stopped: the ranks know which they have.
            words: What else may have been meant.
        """
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
        if "@" in text or "/" in text:
            return self.actor(text).name
        actors = self.actors()
        if all(actor.name != text for actor in actors):
            raise UsageError(_unknown(text, actors))
        return text

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
            )
            for rank in ranks
        }

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
        if not reached or not names_dimensions(selection):
            if len(problems) > 0 and len(problems) == len(views):
                raise problems[0]
            # Ranks by number may lie outside every view that is stopped: they are named as not stopped. And where
            # nothing was reached, this says why.
            reached.update(resolve(selection, mesh.shape, facts=facts, allow_empty=bool(reached)))
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
        other = f"; a thread of it is stopped: attach {threads[0]} {rank}" if threads else ""
        raise UsageError(
            f"{label} rank {rank} {'runs since it was resumed' if session is not None else 'is not stopped'}"
            + (other or f"; to stop it: interrupt {label} ranks({rank})")
        )


def _ranks(selection: Selection, view: Shape, whole: Shape, facts: Facts) -> Sequence[int]:
    return resolve(selection, view, numbering=whole, facts=facts, allow_empty=True)


def _unknown(text: str, actors: Sequence[Actor], words: Sequence[str] = ()) -> str:
    labels = [actor.label for actor in actors]
    if not labels:
        return f"no actor {text!r}: nothing runs"
    near = near_miss(text, [*labels, *words])
    return f"no actor {text!r}{near or ';'} there are: {', '.join(sorted(labels))}"


def mesh_name(mesh: MeshFacts, meshes: Sequence[MeshFacts]) -> str:
    """Return how a mesh is written: its name if that is its alone and can be typed, else its id."""
    named = [other for other in meshes if other.name == mesh.name]
    return mesh.name if mesh.name and len(named) == 1 and _NAME.fullmatch(mesh.name) else mesh.mesh_id

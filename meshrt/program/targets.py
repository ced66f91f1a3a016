"""Which ranks a user means by an actor's name and a selection.

Selections are evaluated by `meshrt.selection`: numbers are base ranks, dims are those of the whole mesh, no matter what
has stopped, and the result stays inside the ranks where the actor lives. Dims that the mesh does not have (``pp`` of a
reshaped mesh) are those of the view that the actor was spawned on, and of the views through which the ranks that are
stopped were called.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from msgspec.structs import replace

from meshrt.errors import SelectionError, UsageError
from meshrt.hooks.services import RootServices
from meshrt.hooks.snapshot import MeshFacts, Silent
from meshrt.program.sources import Sources
from meshrt.program.states import RankStates, State, Stop, state_of
from meshrt.selection import (
    Selection,
    Shape,
    check_numbers,
    complain,
    dimensions_of,
    fold_ranks,
    names_states,
    near_miss,
    parse,
    resolve,
)

__all__ = ["Actor", "Selected", "Targets", "address", "mesh_name", "ranks_by_mesh"]

_NAME = re.compile(r"([\w-]+)(?:@([\w.-]+))?(?:/([\w.-]+))?")


@dataclass(frozen=True, slots=True)
class Actor:
    """One actor of one mesh, and one of its threads ("": the thread that runs its endpoints).

    Attributes:
        name: "": what runs on the ranks that have no actor.
        label: Its name, with its mesh where several have this name: ``debugee``, ``debugee@k3f``.
        views: The view that it was spawned on, by the base ranks where it lives.
    """

    mesh: MeshFacts
    name: str
    thread: str
    label: str
    views: Mapping[int, Shape]

    def shape_at(self, rank: int, called: Shape | None = None) -> Shape:
        """Return the shape whose dims name a rank: that of the mesh, unless a view has dims of its own.

        Args:
            called: The view through which the actor was called there, if that is known.
        """
        return _own_dims(called, _own_dims(self.views.get(rank), self.mesh.shape))

    @property
    def whose(self) -> str:
        """The ranks where it lives, in words."""
        count = len(self.views)
        return f"{self.label}, which is on {'rank' if count == 1 else 'ranks'} {fold_ranks(self.views)}"


@dataclass(frozen=True, slots=True)
class Selected:
    """The base ranks of an actor that a selection denotes."""

    actor: Actor
    ranks: tuple[int, ...]

    @property
    def gone(self) -> dict[int, str]:
        """The ranks that have ended, and how each has ended."""
        ended = self.actor.mesh.ended
        return {rank: str(ended[rank]) for rank in self.ranks if rank in ended}


def ranks_by_mesh(parts: Iterable[Selected]) -> dict[str, list[int]]:
    """Return all selected base ranks, by mesh id, ascending."""
    found: dict[str, set[int]] = {}
    for part in parts:
        found.setdefault(part.actor.mesh.mesh_id, set()).update(part.ranks)
    return {mesh_id: sorted(ranks) for mesh_id, ranks in found.items()}


class Targets:
    """Evaluates names, selections and states for what runs now. On the root's loop.

    Args:
        sources: What plug-ins know.
        silent_hosts: Hosts whose agents do not answer, and since when (epoch seconds).
    """

    def __init__(
        self, services: RootServices, sources: Sources, silent_hosts: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        self._services = services
        self._sources = sources
        self._silent_hosts = silent_hosts

    def without(self, silent_hosts: Mapping[str, float]) -> Targets:
        """Return targets for the time in which the agents of some hosts do not answer, since when (epoch seconds)."""
        return Targets(self._services, self._sources, silent_hosts) if silent_hosts else self

    def meshes(self) -> list[MeshFacts]:
        """Return the meshes that run."""
        meshes = self._services.meshes()
        return [self._with_silent_hosts(mesh) for mesh in meshes] if self._silent_hosts else list(meshes)

    def _with_silent_hosts(self, mesh: MeshFacts) -> MeshFacts:
        hosts = self._silent_hosts
        silent = {rank: Silent("host", hosts[mesh.hosts[rank]]) for rank in mesh.alive if mesh.hosts[rank] in hosts}
        return replace(mesh, silent={**silent, **mesh.silent})

    def silent_for(self, mesh_id: str, rank: int) -> float:
        """Return for how many seconds a rank is known not to answer; 0.0: it is not known to be silent."""
        for mesh in self.meshes():
            if mesh.mesh_id == mesh_id and rank in mesh.silent:
                return time.time_ns() / 1e9 - mesh.silent[rank].since
        return 0.0

    def actors(self) -> list[Actor]:
        """Return every actor that can be named, and each stopped thread of the user's own as a further one."""
        known: dict[tuple[str, str, str], MeshFacts] = {}
        meshes = self.meshes()
        by_id = {mesh.mesh_id: mesh for mesh in meshes}
        for mesh in meshes:
            for name in mesh.actors:
                known[mesh.mesh_id, name, ""] = mesh
        stops = self._sources.stops
        for mesh_id, name, thread in stops.threads():
            if mesh_id in by_id:
                known[mesh_id, name, thread] = by_id[mesh_id]
        names = [(name, thread) for _, name, thread in known]
        return [
            Actor(
                mesh,
                name,
                thread,
                address(name, thread, mesh_name(mesh, meshes) if count > 1 else ""),
                # A session may be left of an actor that was stopped.
                mesh.actors.get(name) or dict.fromkeys(stops.views(mesh.mesh_id, name, thread), mesh.shape),
            )
            for (_, name, thread), mesh in known.items()
            for count in [names.count((name, thread))]
        ]

    def bare(self) -> Iterator[Actor]:
        """Yield, for each mesh, what runs on the ranks that have no actor."""
        meshes = self.meshes()
        for mesh in meshes:
            bare = [rank for rank in mesh.shape.ndslice if not mesh.actors_of(rank)]
            if bare:
                yield Actor(mesh, "", "", mesh_name(mesh, meshes), dict.fromkeys(bare, mesh.shape))

    def names_of_ranks(self, mesh_id: str) -> dict[int, str]:
        """Return the names of a mesh's ranks where no actor is meant; {}: no such mesh, or it is being stopped."""
        for mesh in self.meshes():
            if mesh.mesh_id == mesh_id and not mesh.stopping:
                actors = [actor for actor in self.actors() if actor.mesh.mesh_id == mesh_id and not actor.thread]
                labels = {rank: [each.label for each in actors if rank in each.views] for rank in mesh.shape.ndslice}
                return {rank: names[0] if len(names) == 1 else mesh.name or mesh_id for rank, names in labels.items()}
        return {}

    def _only(self) -> Actor:
        actors = [actor for actor in self.actors() if not actor.thread]
        if len(actors) != 1:
            labels = " or ".join(sorted(actor.label for actor in actors))
            raise UsageError(f"name the actor before the ranks: {labels}" if labels else "there is no actor yet")
        return actors[0]

    def actor(self, text: str, *, any_thread: bool = False, words: Sequence[str] = ()) -> Actor:
        """Return the actor that ``text`` names: by its own name, or by that of a mesh with only one actor.

        If several meshes have such an actor, it is the only one of these that was stopped.

        Args:
            text: As in `address`; "": the only actor that there is.
            any_thread: The named thread need not have stopped: only the ranks know which threads they have.
            words: Other words that may have been meant, for the message.
        Raises:
            UsageError: There is no such actor, or several; the message lists what there is.
        """
        if not text:
            return self._only()
        match = _NAME.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is not a valid name of an actor")
        name, mesh, thread = match[1], match[2] or "", match[3] or ""
        actors = self.actors()
        found = [actor for actor in actors if (actor.name, actor.thread) == (name, thread)]
        if not found and any_thread:
            found = [
                dataclasses.replace(actor, thread=thread, label=f"{actor.label}/{thread}")
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
            stopped = [each for each in found if self._views(each)]
            if len(stopped) != 1:
                labels = " or ".join(actor.label for actor in found)
                raise UsageError(f"{len(found)} meshes have an actor {name!r}; name one: {labels}")
            found = stopped
        return found[0]

    def bare_name(self, text: str) -> str:
        """Return the name of an existing actor without its mesh; UsageError if there is none."""
        if any(actor.name == text for actor in self.actors()):
            return text
        return self.actor(text).name

    def stops(self, actor: Actor) -> dict[int, Stop]:
        """Return what the debugger knows of every rank of an actor, by base rank."""
        mesh, stops = actor.mesh, self._sources.stops
        ranks = self._views(actor) if actor.thread else actor.views
        return {rank: stops.stop(mesh.mesh_id, rank, actor.name, actor.thread) for rank in ranks}

    def stop(self, actor: Actor, rank: int) -> Stop:
        """Return what the debugger knows of an actor of one rank."""
        return self._sources.stops.stop(actor.mesh.mesh_id, rank, actor.name, actor.thread)

    def states(self, actor: Actor) -> dict[int, State]:
        """Return the state of every rank of an actor."""
        return {rank: self.state(actor, rank, stop) for rank, stop in self.stops(actor).items()}

    def state(self, actor: Actor, rank: int, stop: Stop) -> State:
        """Return the state of one rank of an actor, of which the debugger knows ``stop``."""
        mesh, holds, activity = actor.mesh, self._sources.holds, self._sources.activity
        held = holds.stopped(mesh.mesh_id, rank, actor.name)
        return state_of(mesh, rank, stop, held, activity.state(mesh.mesh_id, rank, actor.name))

    def _views(self, actor: Actor) -> Mapping[int, Shape | None]:
        """Return the ranks where the actor, or its thread, was stopped."""
        return self._sources.stops.views(actor.mesh.mesh_id, actor.name, actor.thread)

    def select(self, name: str, text: str, *, any_thread: bool = False) -> Selected:
        """Return the ranks of actor ``name`` that the selection ``text`` ("": all ranks) denotes."""
        return self.select_of(self.actor(name, any_thread=any_thread), text, any_thread=any_thread)

    def select_of(self, actor: Actor, text: str, *, any_thread: bool = False) -> Selected:
        """Return the ranks of ``actor`` that the selection ``text`` ("": all ranks) denotes.

        Args:
            any_thread: As in `actor`; then "" denotes all ranks, not only those on which the thread has stopped.

        Raises:
            SelectionError: The text is not in the grammar, or what it names does not exist: a rank that does not have
                the actor, say.
        """
        if not text.strip():
            members = self._views(actor) if actor.thread and not any_thread else actor.views
            return Selected(actor, tuple(sorted(members)))
        return self._evaluate(actor, parse(text), strict=True)

    def _evaluate(self, actor: Actor, selection: Selection, *, strict: bool = False) -> Selected:
        """Return the ranks of ``actor`` that a selection denotes.

        Args:
            strict: Refuse numbers of ranks that do not have the actor. Otherwise they are left out.

        Raises:
            SelectionError: What it names does not exist, or it denotes no rank of the actor.
        """
        denoted = self._denoted(actor, selection)
        if strict:
            check_numbers(selection, actor.mesh.shape, actor.views, actor.whose)
        ranks = tuple(sorted(denoted & actor.views.keys()))
        if not ranks:
            raise complain(f"this selects no rank of {actor.whose}", selection.text, selection.expr.span)
        return Selected(actor, ranks)

    def _denoted(self, actor: Actor, selection: Selection) -> set[int]:
        """Return the ranks that a selection denotes, ranks of the mesh without the actor included."""
        mesh = actor.mesh
        stopped = self._views(actor)
        states = self.states(actor) if names_states(selection) else {}
        facts = RankStates(states, self._sources.activity.groups(mesh.mesh_id))
        if dimensions_of(selection) <= set(mesh.shape.labels):
            return set(resolve(selection, mesh.shape, facts=facts, allow_empty=len(actor.views) < len(mesh.shape)))
        named: dict[Shape, set[int]] = {}
        for rank in actor.views:
            shape = actor.shape_at(rank)
            if shape is not mesh.shape:
                named.setdefault(shape, set()).add(rank)
        for rank, view in stopped.items():
            named.setdefault(actor.shape_at(rank, view), set()).add(rank)
        wanted, reached = set[int](), set[int]()
        problems: list[SelectionError] = []
        for shape, members in named.items():
            try:
                ranks = resolve(selection, shape, numbering=mesh.shape, facts=facts, allow_empty=True)
            except SelectionError as error:
                problems.append(error)
                continue
            reached.update(ranks)
            wanted.update(members.intersection(ranks))
        if len(problems) == len(named):
            if problems:
                raise problems[0]
            resolve(selection, mesh.shape, facts=facts)  # says which dims there are
        return wanted | reached.difference(*named.values())

    def everywhere(
        self, name: str, text: str, *, any_thread: bool = False, words: Sequence[str] = (), bare: bool = False
    ) -> list[Selected]:
        """Return the ranks that ``text`` denotes on actor ``name``, or ("") on every actor that has such ranks.

        Args:
            any_thread, words: As in `actor`.
            bare: Without a name: also ranks that have no actor, as those of an actor without a name.

        Raises:
            UsageError: There is no such actor, or no actor at all.
            SelectionError: No actor has such ranks.
        """
        if name:
            actor = self.actor(name, any_thread=any_thread, words=words)
            return [self.select_of(actor, text, any_thread=any_thread)]
        return self.among([*self.actors(), *(self.bare() if bare else ())], text)

    def by_mesh(self, name: str, text: str, *, any_thread: bool = True) -> dict[str, list[int]]:
        """Return the base ranks that ``text`` denotes on actor ``name``, by mesh id, ascending.

        Without a name those of all actors, and ranks without an actor; without both all. ``any_thread``: as in `actor`.

        Raises:
            UsageError: There is no such actor, or no actor at all.
            SelectionError: No such ranks.
        """
        if not name and not text:
            return {mesh.mesh_id: list(mesh.shape.ranks()) for mesh in self.meshes()}
        return ranks_by_mesh(self.everywhere(name, text, any_thread=any_thread, bare=True))

    def among(self, actors: Iterable[Actor], text: str) -> list[Selected]:
        """Return the ranks that ``text`` denotes on those of some actors that have such ranks.

        Raises:
            SelectionError: None has such ranks.
        """
        selection = parse(text) if text.strip() else None
        found = []
        problems: list[tuple[int, SelectionError]] = []
        for actor in actors:
            try:
                found.append(self.select_of(actor, "") if selection is None else self._evaluate(actor, selection))
            except SelectionError as error:
                problems.append((len(actor.mesh.shape), error))
        if problems and not found:
            raise max(problems, key=lambda problem: problem[0])[1]  # of a singleton it would say little
        return found


def _of_mesh(name: str, actors: Sequence[Actor], meshes: Sequence[MeshFacts]) -> list[Actor]:
    """Return the actor of the mesh that a user names; none if there is no such mesh. UsageError: it has several."""
    named = [mesh.mesh_id for mesh in meshes if name in (mesh.mesh_id, mesh.name)]
    found = [actor for actor in actors if actor.mesh.mesh_id in named and not actor.thread]
    if named and len(found) != 1:
        hint = f"; name one: {' or '.join(sorted(actor.label for actor in found))}" if found else " yet"
        raise UsageError(f"mesh {name} has {len(found) or 'no'} actors{hint}")
    return found


def _unknown(text: str, actors: Sequence[Actor], words: Sequence[str] = ()) -> str:
    labels = [actor.label for actor in actors]
    if not labels:
        return f"no actor {text!r}: no actor runs"
    near = near_miss(text, [*labels, *words]) or (f"; write a rank as ranks({text});" if text.isdigit() else ";")
    return f"no actor {text!r}{near} there are: {', '.join(sorted(labels))}"


def mesh_name(mesh: MeshFacts, meshes: Sequence[MeshFacts]) -> str:
    """Return how a mesh is written: its name if that is unique and can be typed, else its id."""
    named = [other for other in meshes if other.name == mesh.name]
    return mesh.name if mesh.name and len(named) == 1 and _NAME.fullmatch(mesh.name) else mesh.mesh_id


def address(actor: str, thread: str = "", mesh: str = "") -> str:
    """Return how a user names an actor: ``debugee``, ``debugee@mesh`` or ``debugee/thread``."""
    return actor + (f"@{mesh}" if mesh else "") + (f"/{thread}" if thread else "")


def _own_dims(view: Shape | None, whole: Shape) -> Shape:
    """Return ``whole``, or the view if that has dims of its own."""
    return whole if view is None or set(view.labels) <= set(whole.labels) else view

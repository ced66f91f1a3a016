"""Root side: states and meshes as rows for terminals."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from meshrt.errors import UsageError
from meshrt.hooks.measured import Measured, ProcessFacts
from meshrt.hooks.services import RootServices
from meshrt.inspect.operations import Listing, MeshStatus, ProgramStatus, RankRow, StateGroup
from meshrt.inspect.waittext import waits_of
from meshrt.program.groups import by_key
from meshrt.program.program import program_of
from meshrt.program.states import State, Stop
from meshrt.program.targets import Actor, Targets
from meshrt.program.words import silence
from meshrt.selection import STATE_WORDS, Shape, near_miss

__all__ = ["row_of", "rows_of", "status_of", "with_memory"]

K = TypeVar("K", bound=Hashable)

#: Most rows of one listing; arrays on the wire are limited to about as many.
_MOST_ROWS = 2000
_MOST_BYTES = 800_000


def rows_of(targets: Targets, state: str, name: str, ranks: str) -> Listing:
    """Return one row for each rank of each actor that is in ``state``.

    Args:
        state: A word of the grammar, or "all".
        name: Only this actor; "" for all.
        ranks: A selection; "" for all ranks.
    Raises:
        UsageError: There is no such state, or no such actor.
    """
    if state != "all" and state not in STATE_WORDS:
        known = ("all", *STATE_WORDS)
        raise UsageError(f"no state {state!r}{near_miss(state, known) or ';'} there are: {', '.join(known)}")
    rows: list[RankRow] = []
    # `list bloked`: a misspelt state was taken for an actor.
    for selected in targets.everywhere(name, ranks, words=STATE_WORDS if state == "all" else ()):
        actor = selected.actor
        stops = targets.stops(actor)
        for rank in selected.ranks:
            if rank in stops:
                found = targets.state(actor, rank, stops[rank])
                if state == "all" or found.is_in(state):
                    rows.append(row_of(actor, rank, stops[rank], found))
    rows.sort(key=lambda row: (row.actor, row.rank))
    size, shown = 0, 0
    while shown < min(len(rows), _MOST_ROWS) and size < _MOST_BYTES:
        size += len(repr(rows[shown]))
        shown += 1
    return Listing(rows[:shown], len(rows) - shown, state)


def with_memory(rows: Sequence[RankRow], measured: Measured) -> list[RankRow]:
    """Return rows with `RankRow.rss` and `RankRow.children`, as host agents have measured it."""
    facts = (measured.ranks.get((row.mesh, row.rank), ProcessFacts()) for row in rows)
    return [
        replace(row, rss=known.rss or 0, children=known.children or ()) for row, known in zip(rows, facts, strict=True)
    ]


def row_of(actor: Actor, rank: int, stop: Stop, state: State) -> RankRow:
    """Return the row of one rank of an actor, of which the debugger knows ``stop``, in this state."""
    mesh = actor.mesh
    place = state.place
    shape = actor.shape_at(rank, stop.view)
    return RankRow(
        actor.label,
        mesh.mesh_id,
        rank,
        _coordinates(shape, mesh.shape, rank),
        shape.to_wire(),
        host=mesh.hosts.get(rank, ""),
        pid=mesh.pids.get(rank, 0),
        endpoint=stop.endpoint,
        file=place.file,
        line=place.line,
        function=place.function,
        module=place.module,
        state=state.word,
        note=state.note,
        since=state.since,
        breakpoint=stop.breakpoint,
        breakpoint_error=stop.breakpoint_error,
        holder=stop.holder,
    )


def _coordinates(shape: Shape, whole: Shape, rank: int) -> dict[str, int]:
    """Return the coordinates of a rank in a shape, or in the whole mesh if the rank is not in that shape."""
    try:
        return shape.coordinates(rank)
    except ValueError:
        return whole.coordinates(rank)


def status_of(targets: Targets, services: RootServices, *, own: int) -> ProgramStatus:
    """Return a summary: meshes; the ranks of each actor by state and place; the waits; the terminals.

    Args:
        own: The pid of the process that asks.
    """
    meshes = [
        MeshStatus(
            mesh.mesh_id,
            mesh.name,
            sizes=list(mesh.shape.extent.items()),
            alive=len(mesh.alive),
            actors=list(mesh.actors),
            gone=_by((str(ended), rank) for rank, ended in mesh.ended.items()),
            silent=_by((silence(silent.state), rank) for rank, silent in mesh.silent.items()),
        )
        for mesh in targets.meshes()
    ]
    groups = []
    for actor in targets.actors():
        states = targets.states(actor)
        kinds = _by(((state.word, state.where, state.note), rank) for rank, state in states.items())
        for (word, place, note), ranks in kinds.items():
            since = [states[rank].since for rank in ranks]
            whose = (actor.label, actor.mesh.mesh_id, word, place, note)
            groups.append(StateGroup(*whose, ranks=ranks, count=len(ranks), since=min(since), latest=max(since)))
    sources = program_of(services).sources
    waits = sources.activity.waits()
    waits.script(services.script_waits())
    names = {mesh.mesh_id: mesh.name for mesh in targets.meshes()}
    told = waits_of(waits, names, unread=tuple(services.unread.values()))
    return ProgramStatus(
        told.waits,
        told.waits_left_out,
        told.unread,
        meshes=meshes,
        groups=groups,
        terminals=sources.terminals(),
        own=own,
    )


def _by(pairs: Iterable[tuple[K, int]]) -> dict[K, Sequence[int]]:
    """Return the numbers by key, ascending."""
    return {key: sorted(ranks) for key, ranks in by_key(pairs).items()}

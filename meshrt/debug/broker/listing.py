"""Root side: what terminals are shown of the sessions, states and meshes, as plain data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from meshrt.debug.broker.sessions import Session, SessionTable
from meshrt.debug.broker.states import State
from meshrt.debug.broker.targets import Actor, Targets
from meshrt.debug.protocol import Place
from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.hooks.services import RootServices
from meshrt.host.osutil import resident_bytes
from meshrt.inspect import silence
from meshrt.inspect.waits import WaitGraph
from meshrt.inspect.waittext import waits_of
from meshrt.selection import STATE_WORDS, Shape, fold_ranks, near_miss
from meshrt.wire.source import source_text

__all__ = ["add_memory", "rows_of", "snapshot_of", "status_of", "waits_known"]

K = TypeVar("K", bound=Hashable)

#: Rows of one listing; arrays on the wire are limited to about as many.
_MOST_ROWS = 2000
_MOST_BYTES = 800_000


def rows_of(table: SessionTable, targets: Targets, state: str, name: str, ranks: str) -> Body:
    """Return one row for each rank of each actor (or of actor ``name``, of the selection ``ranks``) in ``state``.

    Raises:
        UsageError: There is no such state, no such actor.
    """
    if state != "all" and state not in STATE_WORDS:
        known = ("all", *STATE_WORDS)
        raise UsageError(f"no state {state!r}{near_miss(state, known) or ';'} there are: {', '.join(known)}")
    rows: list[Body] = []
    # `list bloked`: what is no state was taken for an actor.
    for selected in targets.everywhere(name, ranks, words=STATE_WORDS if state == "all" else ()):
        actor = selected.actor
        sessions = table.of_actor(actor.mesh.mesh_id, actor.name, actor.thread)
        states = targets.states(actor)
        rows += [
            _row(actor, rank, states[rank], sessions.get(rank))
            for rank in selected.ranks
            if state == "all" or states[rank].is_in(state)
        ]
    rows.sort(key=lambda row: (row["actor"], row["rank"]))
    size, shown = 0, 0
    while shown < min(len(rows), _MOST_ROWS) and size < _MOST_BYTES:
        size += len(repr(rows[shown]))
        shown += 1
    return {"rows": rows[:shown], "left_out": len(rows) - shown, "state": state}


def add_memory(rows: Iterable[Body]) -> None:
    """Add to rows how many bytes of the rank's process are in RAM (``rss``); 0 where it has ended. Any thread."""
    for row in rows:
        row["rss"] = resident_bytes(row["pid"]) if row["state"] != "dead" and row["pid"] else 0


def _row(actor: Actor, rank: int, state: State, session: Session | None) -> Body:
    mesh = actor.mesh
    place = state.place
    return {
        "actor": actor.label,
        "mesh": mesh.mesh_id,
        "rank": rank,
        "coords": coordinates(session, mesh.shape, rank),
        "view": (mesh.shape if session is None else session.shape_in(mesh.shape)).to_wire(),
        "host": mesh.hosts.get(rank, ""),
        "pid": mesh.pids.get(rank, 0),
        "endpoint": session.endpoint if session is not None else "",
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "module": place.module,
        "state": state.word,
        "note": state.note,
        "since": state.since,
        "breakpoint": session.breakpoint if session is not None else 0,
        "breakpoint_error": session.breakpoint_error if session is not None else "",
        "holder": session.holder.pid if session is not None and session.holder is not None else 0,
    }


def snapshot_of(session: Session, actor: Actor, state: State) -> Body:
    """Return what a terminal needs to begin where ``session`` stands, what was written last included."""
    return {
        **_row(actor, session.key.rank, state, session),
        "session": session.state,
        "reason": session.reason,
        "text": session.text,
        "headline": session.headline,
        "code": _code(session.place),
        "prompt": session.prompt,
        "sent": session.line,
    }


def _code(place: Place) -> str:
    """Return the source line of a place, "" where there is none."""
    lines = (source_text(place.file) or "").splitlines() if place.file else []
    return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""


def waits_known(services: RootServices) -> WaitGraph:
    """Return who waits for whom, of the ranks that are known to stand still. Nobody is asked."""
    activity = services.tables.get("inspect.activity")
    known: WaitGraph = WaitGraph() if activity is None else activity.waits()
    return known


def status_of(targets: Targets, waits: WaitGraph, terminals: list[int], own: int) -> Body:
    """Return the state of everything in few lines: meshes; of each actor its ranks by state and place."""
    meshes = [
        {
            "mesh": mesh.mesh_id,
            "name": mesh.name,
            "sizes": [[label, size] for label, size in mesh.shape.extent.items()],
            "alive": len(mesh.alive),
            "actors": list(mesh.actors),
            "gone": {
                how: fold_ranks(ranks)
                for how, ranks in _by((how, rank) for rank, (how, _) in mesh.gone.items()).items()
            },
            "silent": {
                silence(state): fold_ranks(ranks)
                for state, ranks in _by((state, rank) for rank, state in mesh.silent.items()).items()
            },
        }
        for mesh in targets.meshes()
    ]
    groups = []
    for actor in targets.actors():
        states = targets.states(actor)
        kinds = _by(((state.word, str(state.place) if state.place.line else "", state.note), rank)
                    for rank, state in states.items())  # fmt: skip
        for (word, place, note), ranks in kinds.items():
            groups.append(
                {
                    "actor": actor.label,
                    "mesh": actor.mesh.mesh_id,
                    "state": word,
                    "place": place,
                    "note": note,
                    "ranks": fold_ranks(ranks),
                    "count": len(ranks),
                    "since": min(states[rank].since for rank in ranks),
                    "latest": max(states[rank].since for rank in ranks),
                }
            )
    told = waits_of(waits, {mesh.mesh_id: mesh.name for mesh in targets.meshes()})
    return {"meshes": meshes, "groups": groups, **told, "terminals": terminals, "own": own}


def _by(pairs: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    groups: dict[K, list[int]] = {}
    for key, rank in pairs:
        groups.setdefault(key, []).append(rank)
    return groups


def coordinates(session: Session | None, whole: Shape, rank: int) -> dict[str, int]:
    """Return the coordinates of a rank; in the dims of the view through which the call came, if that has its own."""
    try:
        return (session.shape_in(whole) if session is not None else whole).coordinates(rank)
    except ValueError:
        return whole.coordinates(rank)

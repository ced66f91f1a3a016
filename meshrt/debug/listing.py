"""Root side: what terminals are shown of the sessions and meshes, as plain data."""

from __future__ import annotations

from meshrt.debug.protocol import RUNNING
from meshrt.debug.sessions import Session, SessionTable
from meshrt.debug.targets import Actor, MeshFacts, Targets
from meshrt.hooks import Body
from meshrt.selection import Shape, fold_ranks

__all__ = ["rows_of", "snapshot_of", "status_of"]

#: Rows of one listing; arrays on the wire are limited to about as many.
_MOST_ROWS = 2000


def rows_of(table: SessionTable, targets: Targets, *, running: bool) -> Body:
    """Return one row for each session that is at a prompt, or about to be again (``running``: the others too)."""
    actors = targets.actors()
    meshes = {actor.mesh.mesh_id: actor.mesh for actor in actors}
    rows = [
        _row(session, targets.label(session.key, actors), meshes.get(session.key.mesh_id))
        for session in table
        if running or session.state != RUNNING
    ]
    return {
        "rows": rows[:_MOST_ROWS],
        "left_out": max(0, len(rows) - _MOST_ROWS),
        "names": sorted(actor.label for actor in actors),
    }


def _row(session: Session, label: str, mesh: MeshFacts | None) -> Body:
    rank = session.key.rank
    return {
        "actor": label,
        "mesh": session.key.mesh_id,
        "rank": rank,
        "coords": coordinates(session, mesh.shape if mesh else None),
        "view": session.view.to_wire() if session.view is not None else None,
        "host": mesh.hosts.get(rank, "") if mesh else "",
        "pid": mesh.pids.get(rank, 0) if mesh else 0,
        "endpoint": session.endpoint,
        "file": session.place.file,
        "line": session.place.line,
        "function": session.place.function,
        "module": session.place.module,
        "state": session.state,
        "reason": session.reason,
        "since": session.since,
    }


def snapshot_of(session: Session, actors: list[Actor], label: str) -> Body:
    """Return what a terminal needs to begin where ``session`` stands, what was written last included."""
    mesh = next((actor.mesh for actor in actors if actor.mesh.mesh_id == session.key.mesh_id), None)
    return {
        **_row(session, label, mesh),
        "text": session.text,
        "prompt": session.prompt,
        "stop": session.stop,
        "sent": session.line,
    }


def status_of(table: SessionTable, targets: Targets, terminals: list[int]) -> Body:
    """Return the state of everything in few lines: meshes, sessions by actor, state and place, ended ranks."""
    meshes = []
    for mesh in targets.meshes():
        gone: dict[str, list[int]] = {}
        for rank, how in table.gone_of(mesh.mesh_id).items():
            gone.setdefault(how, []).append(rank)
        meshes.append(
            {
                "mesh": mesh.mesh_id,
                "name": mesh.name,
                "sizes": [[label, size] for label, size in mesh.shape.extent.items()],
                "alive": len(mesh.alive),
                "actors": list(mesh.actors),
                "gone": {how: fold_ranks(ranks) for how, ranks in gone.items()},
            }
        )
    actors = targets.actors()
    groups: dict[tuple[str, str, str], list[Session]] = {}
    for session in table:
        label = targets.label(session.key, actors)
        groups.setdefault((label, session.state, str(session.place)), []).append(session)
    sessions = [
        {
            "actor": label,
            "state": state,
            "place": place,
            "ranks": fold_ranks(session.key.rank for session in members),
            "count": len(members),
            "since": min(session.since for session in members),
        }
        for (label, state, place), members in groups.items()
    ]
    return {"meshes": meshes, "sessions": sessions, "terminals": terminals}


def coordinates(session: Session, whole: Shape | None) -> dict[str, int]:
    """Return the coordinates of a session: of the view through which the call came."""
    for shape in (session.view, whole):
        if shape is not None:
            try:
                return shape.coordinates(session.key.rank)
            except ValueError:
                continue
    return {}

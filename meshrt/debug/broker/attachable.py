"""Root side: the session that ``attach`` names, or the reason why there is none; what the terminal is told of it."""

from __future__ import annotations

import time

from msgspec.structs import asdict

from meshrt.collectives.timeouts import words
from meshrt.debug.advice import how_to_stop
from meshrt.debug.broker.sessions import Session, SessionTable, actor_of
from meshrt.debug.dap.held import held_by_ide
from meshrt.debug.operations import Snapshot
from meshrt.debug.protocol import RUNNING
from meshrt.errors import UsageError
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.listing import row_of
from meshrt.program.places import Place
from meshrt.program.targets import Selected, Targets
from meshrt.selection import STATE_WORDS
from meshrt.wire.source import source_text

__all__ = ["orphans", "session_to_attach", "snapshot_of"]


def session_to_attach(services: RootServices, table: SessionTable, targets: Targets, name: str, text: str) -> Session:
    """Return the one session that ``attach name text`` means.

    Raises:
        UsageError: The text is not one rank, or the rank is not stopped (the message says what to type).
        SelectionError: No such ranks.
    """
    actor = targets.actor(name, any_thread=True)
    if text.isidentifier() and text not in STATE_WORDS:
        rank = min(actor.views)
        coordinates = ",".join(f"{label}={index}" for label, index in actor.shape_at(rank).coordinates(rank).items())
        or_so = f", or attach {actor.label} {coordinates}" if coordinates else ""
        raise UsageError(
            f"{text!r} is not a rank; expected its number or its coordinates: attach {actor.label} {rank}{or_so}"
        )
    selected = targets.select_of(actor, text, any_thread=True)
    if len(selected.ranks) != 1:
        raise UsageError(f"attach needs exactly one rank; {text!r} selects {len(selected.ranks)}")
    rank = selected.ranks[0]
    session = table.among(selected).get(rank)
    if session is not None and session.state != RUNNING:
        return session
    mesh = selected.actor.mesh
    label = selected.actor.label
    if rank in mesh.ended:
        raise UsageError(f"{label} rank {rank} has ended: it {mesh.ended[rank]}")
    threads = [
        session.name
        for session in table.of_rank(mesh.mesh_id, rank)
        if session.key.actor == selected.actor.name and session.key.thread and session.state != RUNNING
    ]
    held = held_by_ide(services, mesh.mesh_id, rank)
    if held.lost:
        raise UsageError(
            f"{label} rank {rank} is stopped in {held.ide}; continue {label} ranks({rank}) resumes it without an IDE"
        )
    if held.ide:
        raise UsageError(f"{label} rank {rank} is attached to {held.ide}: stop, inspect and resume the rank there")
    first = mesh.actors_of(rank)[:1] == [selected.actor.name]
    how = how_to_stop(label, f"ranks({rank})", first=first, thread=bool(selected.actor.thread))
    other = f"; a thread of it is stopped: attach {threads[0]} {rank}" if threads else ""
    raise UsageError(
        f"{label} rank {rank} {'was resumed and is running' if session is not None else 'is not stopped'}"
        + (other or f"; to stop it: {how}")
    )


def orphans(services: RootServices, targets: Targets, selected: Selected | None) -> dict[tuple[str, int], str]:
    """Return the ranks that are stopped in an IDE that has disconnected: (mesh id, rank) -> label of an actor there.

    Args:
        selected: Look at these ranks only; None: at all.
    """
    found: dict[tuple[str, int], str] = {}
    for part in targets.everywhere("", "", bare=True) if selected is None else [selected]:
        mesh_id = part.actor.mesh.mesh_id
        for rank in part.ranks:
            if held_by_ide(services, mesh_id, rank).lost:
                found.setdefault((mesh_id, rank), part.actor.label)
    return found


def snapshot_of(session: Session, targets: Targets, client: ToolClient) -> Snapshot:
    """Return the answer to a terminal that attaches: where ``session`` is stopped, its prompt, what it has written.

    Raises:
        UsageError: Its mesh has ended.
    """
    actor = actor_of(session.key, targets.actors())
    if actor is None:
        raise UsageError(f"the mesh of {session.name} has ended")
    rank, at = session.key.rank, session.at
    stop = targets.stop(actor, rank)
    return Snapshot(
        **asdict(row_of(actor, rank, stop, targets.state(actor, rank, stop))),
        session=session.state,
        reason=at.reason,
        text=session.text_for(client),
        headline=at.headline,
        code=_code(at.place),
        selected=(at.selected, _code(at.selected)) if at.selected.file else None,
        prompt=at.prompt,
        sent=session.line,
        limits=words(at.limits, time.time_ns() / 1e9 - at.since) if session.stop is not None else (),
    )


def _code(place: Place) -> str:
    """Return the source line of a place; "" where there is none."""
    lines = (source_text(place.file) or "").splitlines() if place.file else []
    return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""

"""Root side: the snapshot of a session that a terminal gets when it attaches."""

from __future__ import annotations

from msgspec.structs import asdict

from meshrt.debug.broker.sessions import Session
from meshrt.debug.operations import Snapshot
from meshrt.inspect.listing import row_of
from meshrt.program.places import Place
from meshrt.program.targets import Actor, Targets
from meshrt.wire.source import source_text

__all__ = ["snapshot_of"]


def snapshot_of(session: Session, actor: Actor, targets: Targets) -> Snapshot:
    """Return the answer to attach: where ``session`` is stopped, its prompt, and what it has written last."""
    rank, at = session.key.rank, session.at
    return Snapshot(
        **asdict(row_of(targets, actor, rank, targets.states(actor)[rank])),
        session=session.state,
        reason=at.reason,
        text=session.text,
        headline=at.headline,
        code=_code(at.place),
        prompt=at.prompt,
        sent=session.line,
    )


def _code(place: Place) -> str:
    """Return the source line of a place; "" where there is none."""
    lines = (source_text(place.file) or "").splitlines() if place.file else []
    return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""

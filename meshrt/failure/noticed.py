"""Records of failures that the root itself notices: processes that have ended, ranks that have not answered. Pure."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from meshrt.errors import CallTimeout
from meshrt.failure.record import ExceptionFacts, FailureRecord, Plain
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import PendingCall
from meshrt.hooks.snapshot import MeshFacts
from meshrt.wire.source import line_of

__all__ = ["of_fate", "of_silence", "sharing", "shortened", "with_source"]

T = TypeVar("T")

#: Lines of output that a record keeps; and one of many.
_LINES = 50
_FEW_LINES = 4


def of_fate(mesh_id: str, rank: int, fate: Fate, mesh: MeshFacts | None, owed: Sequence[PendingCall]) -> FailureRecord:
    """Return the record of a process that has ended, or of a host with its ranks.

    Args:
        mesh: What is known of the mesh; None if it is not remembered.
        owed: The oldest call of the script to each of its actors that it has not answered.
    """
    kind, blame = "exit", "worker"
    if fate.kind == "host":
        kind, blame = "host", "infra"
    elif fate.kind == "unborn":
        kind, blame = "unborn", "platform"
    elif fate.signal is not None:
        kind, blame = "signal", "platform" if fate.hint.startswith("out of memory") else "worker"
    now = time.monotonic_ns()
    facts = FailureRecord(
        kind=kind,
        blame=blame,
        mesh_id=mesh_id,
        host=fate.host,
        pid=fate.pid,
        waited_for=bool(owed),
        doing=unanswered(owed),
        fate=dataclasses.replace(fate, log_tail=fate.log_tail[-_LINES:]),
        low=fate.low or now,
        high=fate.high or now,
        clock=fate.clock,
        clock_error=fate.clock_error,
        time=fate.when,
    )
    name = mesh.name if mesh is not None else ""
    if kind == "host":
        return replace(facts, mesh=name, ranks=(rank,))
    if mesh is None:
        return replace(facts, rank=rank, incarnation=-fate.restarts)
    actors = mesh.actors_of(rank)
    return replace(
        facts,
        mesh=name,
        actor=actors[0] if len(actors) == 1 else "",
        rank=rank,
        coordinates=dict(mesh.shape.coordinates(rank)),
        incarnation=mesh.incarnations.get(rank, 0) - fate.restarts,
    )


def unanswered(calls: Iterable[PendingCall]) -> tuple[str, ...]:
    """Name the calls that have no answer. Their answers may come behind the end of their rank: it was read first."""
    return tuple(f"{call.actor}.{call.endpoint}()" for call in calls if call.failing or not call.done())


def of_silence(error: CallTimeout, mesh: str, *, end: str = "") -> FailureRecord:
    """Return the record of ranks that had not answered when the wait of the script ended.

    Args:
        mesh: Its name.
        end: What has ended it, in words that follow "when", if it was no time-out.
    """
    now = time.monotonic_ns()
    first = error.missing[0]
    facts = FailureRecord(
        kind="silent",
        blame="worker",
        mesh_id=first.mesh_id,
        mesh=mesh,
        actor=first.actor,
        ranks=tuple(place.rank for place in error.missing),
        waited_for=True,
        hint=(
            f"had not answered {error.what} after {error.seconds:g} s, when {end}"
            if end
            else f"did not answer {error.what} within {error.seconds:g} s"
        ),
        low=now - int(error.seconds * 1e9),
        high=now,
        time=time.time_ns() / 1e9,
    )
    if len(error.missing) > 1:
        return facts
    return replace(facts, rank=first.rank, coordinates=dict(first.coordinates), host=first.host, pid=first.pid)


def with_source(error: ExceptionFacts) -> ExceptionFacts:
    """Fill in source lines that a rank could not read: those of the script are known here."""
    frames = tuple(
        frame if frame.source else replace(frame, source=line_of(frame.file, frame.line, frame.function)[:300])
        for frame in error.frames
    )
    return replace(error, frames=frames, linked=tuple(map(with_source, error.linked)))


def shortened(record: FailureRecord) -> FailureRecord:
    """Return a record without its large parts."""
    error = record.exception
    if error is not None:
        frames = tuple(replace(frame, locals={}) for frame in error.frames)
        error = replace(error, frames=frames)
    fate = record.fate
    if fate is not None:
        fate = dataclasses.replace(fate, log_tail=fate.log_tail[-_FEW_LINES:])
    return replace(record, exception=error, fate=fate)


def sharing(value: T, other: object) -> T:
    """Return an equal value that has the parts in common with ``other``: records of one cause are alike.

    A record takes 3 KiB by itself, and there may be thousands.
    """
    if type(value) is not type(other):
        return value
    if value == other:
        return other
    if isinstance(value, Plain):
        parts = {name: sharing(getattr(value, name), getattr(other, name)) for name in value.__struct_fields__}
        return replace(value, **parts)
    if isinstance(value, tuple) and isinstance(other, tuple):
        return cast("T", (*map(sharing, value, other), *value[len(other) :]))
    return value

"""Records as ranks and agents make them, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from meshrt.failure.incident import Incident, IncidentMesh
from meshrt.failure.record import ExceptionFacts, FailureRecord, Frame, Reference
from meshrt.hooks.fate import Fate

__all__ = ["MS", "death", "incident", "raised", "silent"]

MS = 1_000_000
_BASES = {
    "ValueError": ("ValueError", "Exception", "BaseException"),
    "EOFError": ("EOFError", "Exception", "BaseException"),
    "ConnectionResetError": ("ConnectionResetError", "ConnectionError", "OSError", "Exception", "BaseException"),
    "TimeoutError": ("TimeoutError", "OSError", "Exception", "BaseException"),
}


def raised(
    rank: int,
    at: float,
    kind: str = "ValueError",
    message: str = "bad batch",
    *,
    about: Reference | None = None,
    cleaned_up: float = 0.0,
    **facts: Any,
) -> FailureRecord:
    """An exception of ``rank``, ``at`` milliseconds after the start; it may be ``cleaned_up`` ms older."""
    frames = (Frame("train.py", 88, "step", "loss = model(batch)", {"batch": "[1, 2]"}),)
    error = ExceptionFacts(kind, message, _BASES.get(kind, ("Exception", "BaseException")), frames=frames, about=about)
    facts = {"exception": error, "actor": "trainer", "endpoint": "step", **facts}
    return _record(rank, at, cleaned_up, id=f"a{rank}.1", time=1_700_000_000.0 + at / 1e3, **facts)


def death(rank: int, at: float, *, signal: int | None = 9, seen_late: float = 0.0, **facts: Any) -> FailureRecord:
    """The end of the process of ``rank``; it may have ended ``seen_late`` ms before."""
    kind = "exit" if signal is None else "signal"
    names = ("exit_code", "hint", "stack", "log_tail", "restarts")
    how = {name: facts.pop(name) for name in names if name in facts}
    record = _record(rank, at, seen_late, kind=kind, blame="worker", **facts)
    fate = Fate("died", record.host, record.pid, signal=signal, low=record.low, high=record.high, **how)
    return replace(record, fate=fate)


def silent(ranks: tuple[int, ...], at: float, seconds: float) -> FailureRecord:
    """Some ranks have not answered in time."""
    facts = {"kind": "silent", "actor": "trainer", "hint": f"did not answer trainer.step() within {seconds:g} s"}
    return _record(-1, at, seconds * 1e3, ranks=ranks, coordinates={}, **facts)


def _record(rank: int, at: float, uncertain: float, **facts: Any) -> FailureRecord:
    span = {"low": int((at - uncertain) * MS), "high": int(at * MS)}
    place = {"mesh_id": "m", "mesh": "train", "rank": rank, "coordinates": {"n": rank}, "host": "node"}
    return FailureRecord(**{**place, **span, "pid": 100 + rank, "waited_for": True, **facts})


def incident(*records: FailureRecord, ranks: int = 4, **facts: Any) -> Incident:
    """What the root knows of a mesh ``train`` of so many ranks."""
    mesh = IncidentMesh("m", "train", {"n": ranks}, 1_700_000_000.0 - 10, tuple(range(ranks)))
    return Incident(
        1, "cafe0123", facts.pop("found_by", ""), ("python", "train.py"), 1_700_000_000.0, (mesh,), records, **facts
    )

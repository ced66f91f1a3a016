"""What ``meshrt postmortem`` shows of a program's failures beside the report, for people and for programs.

What programs read is described in docs/json.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshrt.errors import SelectionError
from meshrt.failure import files
from meshrt.failure.causes import Verdict
from meshrt.failure.incident import Incident, MeshFacts
from meshrt.failure.record import FailureRecord
from meshrt.failure.report import counted, named, render_record, shown, stack_lines
from meshrt.inspect.narrowing import narrowed
from meshrt.selection import Extent, Shape, fold_ranks

__all__ = ["listing", "of_rank", "plain_listing", "plain_of_rank", "root_cause"]


def listing(found: Iterable[Path]) -> str:
    """Return the failures of a program, one after the other. Raises UsageError, as `files.read`."""
    lines = []
    for path in found:
        incident = files.read(path)
        count = counted(len(incident.records), "failure")
        lines.append(f"{path}\n  {count}; root cause: {root_cause(incident)}\n")
    return "".join(lines)


def root_cause(incident: Incident) -> str:
    """Return one line about what has failed first."""
    verdict = incident.verdict()
    root = next((f"{named(root)}: {shown(root.headline)}" for root in verdict.roots), "not known")
    return f"AMBIGUOUS, one of {len(verdict.roots)}: {root}" if verdict.ambiguous and verdict.roots else root


def plain_listing(found: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the same as plain data."""
    failures = []
    for path in found:
        incident = files.read(path)
        verdict = incident.verdict()
        failures.append(
            {
                "file": str(path),
                "number": incident.number,
                "began": incident.began,
                "records": len(incident.records),
                "ambiguous": verdict.ambiguous,
                "certainty": verdict.certainty,
                "roots": [_identity(root) for root in verdict.roots],
            }
        )
    return failures


def of_rank(incident: Incident, rank: int) -> str:
    """Return everything about one rank: its failures, or where it stood.

    Raises:
        SelectionError: There is no such rank.
    """
    verdict = incident.verdict()
    records = _records(incident, rank)
    if records:
        return "\n".join(render_record(record, incident, verdict) for record in records)
    return "\n".join(_healthy(incident, mesh, rank) for mesh in _meshes(incident, rank))


def plain_of_rank(incident: Incident, rank: int) -> dict[str, Any]:
    """Return the same as plain data."""
    verdict = incident.verdict()
    records = _records(incident, rank)
    meshes = [] if records else _meshes(incident, rank)
    return {
        "rank": rank,
        "records": [{**record.to_plain(), "cause": _plain_cause(record, verdict)} for record in records],
        "did_not_fail": [
            {
                "mesh_id": mesh.mesh_id,
                "mesh": mesh.name,
                "coordinates": _coordinates(mesh, rank),
                "had_ended": rank not in mesh.alive,
                "stacks": _stacks(incident, mesh, rank),
            }
            for mesh in meshes
        ],
    }


def _records(incident: Incident, rank: int) -> list[FailureRecord]:
    return [record for record in incident.records if rank >= 0 and rank in (record.rank, *record.ranks)]


def _meshes(incident: Incident, rank: int) -> list[MeshFacts]:
    """Return the meshes that have a rank of this number. Raises SelectionError: none has."""
    found = [mesh for mesh in incident.meshes if 0 <= rank < len(_shape(mesh))]
    if not found:
        known = "; ".join(f"{fold_ranks(range(len(_shape(mesh))))} of {mesh.name}" for mesh in incident.meshes)
        raise SelectionError(f"no mesh had a rank {rank} when it failed; expected one of {known or 'none'}")
    return found


def _shape(mesh: MeshFacts) -> Shape:
    return Shape.from_extent(Extent(tuple(mesh.sizes), tuple(mesh.sizes.values())))


def _coordinates(mesh: MeshFacts, rank: int) -> dict[str, int]:
    return dict(_shape(mesh).coordinates(rank))


def _healthy(incident: Incident, mesh: MeshFacts, rank: int) -> str:
    coordinates = ", ".join(f"{label}={index}" for label, index in _coordinates(mesh, rank).items())
    who = f"rank {rank} of {mesh.name}" + (f" ({coordinates})" if coordinates else "")
    if rank not in mesh.alive:
        return f"{who} did not fail: it had ended before\n"
    stacks = _stacks(incident, mesh, rank)
    if stacks is None:
        return f"{who} did not fail; where it was then is not known: {incident.stacks_why or 'it was not asked'}\n"
    lines = "".join(f"  {line}\n" for line in stack_lines({"meshes": [stacks], "left_out": 0})[1:])
    return f"{who} did not fail; where it was then:\n{lines}"


def _stacks(incident: Incident, mesh: MeshFacts, rank: int) -> dict[str, Any] | None:
    """Return where a rank stood, as `meshrt.inspect.plain` has it of its mesh."""
    try:
        found = [stacks for stacks in incident.stacks.get("meshes", ()) if stacks["mesh_id"] == mesh.mesh_id]
        return narrowed(found[0], [rank], _shape(mesh)) if found else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # the file is damaged there


def _identity(record: FailureRecord) -> dict[str, Any]:
    return {
        "mesh_id": record.mesh_id,
        "mesh": record.mesh,
        "actor": record.actor,
        "ranks": list(record.ranks or (record.rank,)),
        "who": named(record),
        "what": record.headline,
    }


def _plain_cause(record: FailureRecord, verdict: Verdict) -> dict[str, Any] | None:
    cause = verdict.cause_of(record)
    if cause is None:
        return None
    other = _identity(cause.record) if cause.record is not None else None
    return {"evidence": cause.evidence, "why": cause.why, "record": other}

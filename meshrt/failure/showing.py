"""What ``meshrt postmortem`` shows of a program's failures in addition to the report, for people and for programs.

The form for programs is described in docs/json.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import replace

from meshrt.errors import SelectionError
from meshrt.failure import files
from meshrt.failure.causes import Verdict
from meshrt.failure.incident import HANDLED, INTERRUPTED, Incident, IncidentMesh
from meshrt.failure.record import Document, FailureRecord
from meshrt.failure.report import apart, named, render_record, shown, stack_lines
from meshrt.inspect.merged import MergedMesh, MergedStacks, Waits
from meshrt.inspect.narrowing import narrowed
from meshrt.selection import counted, fold_ranks, parse, resolve

__all__ = ["listing", "of_rank", "plain_listing", "plain_of_rank", "root_cause"]


#: How the program went on, if it did not end by the failure.
_HOW = {HANDLED: ", which did not end the program", INTERRUPTED: ", when the program was interrupted"}
#: The place of a rank that has answered and runs no code of the program.
_NOWHERE = "  outside user code\n"


def listing(found: Iterable[Path]) -> str:
    """Return the failures of a program, one after the other. Raises MeshError, as `files.read`."""
    lines = []
    for path in found:
        incident = files.read(path)
        count = counted(len(incident.records), "failure")
        count += _HOW.get(incident.outcome, "")
        lines.append(f"{path}\n  {count}; root cause: {root_cause(incident)}\n")
    return "".join(lines)


def root_cause(incident: Incident) -> str:
    """Return one line about the root cause."""
    verdict = incident.verdict()
    hang = incident.known_hang(verdict)
    why = f"{hang.text}; " if hang is not None else ""
    root = next((why + _line(incident, root, likely=hang is None) for root in verdict.roots), "not known")
    return f"AMBIGUOUS, one of {len(verdict.roots)}: {root}" if verdict.ambiguous and verdict.roots else root


def _line(incident: Incident, root: FailureRecord, *, likely: bool) -> str:
    because = apart(incident, root) if likely else ""
    return f"{named(root)}: {shown(root.headline)}" + (f"; likely caused by {because}" if because else "")


def plain_listing(found: Iterable[Path]) -> list[Document]:
    """Return the same as plain data."""
    failures = []
    for path in found:
        incident = files.read(path)
        verdict = incident.verdict()
        hang = incident.known_hang(verdict)
        failures.append(
            {
                "file": str(path),
                "number": incident.number,
                "began": incident.began,
                "records": len(incident.records),
                "ambiguous": verdict.ambiguous,
                "certainty": verdict.certainty,
                "outcome": incident.outcome,
                "roots": [_identity(root, incident) for root in verdict.roots],
                "hang": hang.to_json() if hang is not None else None,
            }
        )
    return failures


def of_rank(incident: Incident, wanted: str) -> str:
    """Return everything about one rank, or the ranks of a selection: their failures, or where they were.

    Raises:
        SelectionError: There are no such ranks.
    """
    verdict = incident.verdict()
    records, healthy = _chosen(incident, wanted)
    texts = [render_record(record, incident, verdict) + _hanging(incident, record, ranks) for record, ranks in records]
    return "\n".join([*texts, *(_healthy(incident, mesh, rank) for mesh, rank in healthy)])


def plain_of_rank(incident: Incident, wanted: str) -> Document:
    """Return the same as plain data."""
    verdict = incident.verdict()
    records, healthy = _chosen(incident, wanted)
    number = {"rank": int(wanted)} if wanted.strip().isdecimal() else {"selection": wanted}
    return {
        **number,
        "records": [
            {
                **record.to_plain(),
                "cause": _plain_cause(record, verdict, incident),
                **_plain_hung(incident, _hung(incident, record, ranks)),
            }
            for record, ranks in records
        ],
        "did_not_fail": [
            {
                "mesh_id": mesh.mesh_id,
                "mesh": mesh.name,
                "rank": rank,
                "coordinates": mesh.shape.coordinates(rank),
                "had_ended": rank not in mesh.alive,
                "stacks": to_builtins(_stacks_of(incident, mesh, rank)),
                **(to_builtins(incident.waits) if incident.hang.reaches(mesh.mesh_id, rank) else {}),
            }
            for mesh, rank in healthy
        ],
    }


def _chosen(
    incident: Incident, wanted: str
) -> tuple[list[tuple[FailureRecord, list[int]]], list[tuple[IncidentMesh, int]]]:
    """Return failures of the selected ranks, each with the ranks that are selected; and the selected healthy ranks."""
    found = _ranks(incident, wanted)
    records = []
    for record in incident.records:
        ranks = [rank for rank in record.members if rank in found.get(record.mesh_id, ())]
        if ranks:
            records.append((record, ranks))
    failed = {(record.mesh_id, rank) for record, ranks in records for rank in ranks}
    healthy = [(mesh, rank) for mesh in incident.meshes for rank in found.get(mesh.mesh_id, ())]
    healthy = [(mesh, rank) for mesh, rank in healthy if (mesh.mesh_id, rank) not in failed]
    if wanted.strip().isdecimal() and records:
        healthy = []  # a plain number means the rank that failed, not that of other meshes
    return records, healthy


def _ranks(incident: Incident, wanted: str) -> dict[str, Sequence[int]]:
    """Return the selected ranks, by mesh id, of meshes with such ranks. Raises SelectionError: there are none."""
    found: dict[str, Sequence[int]] = {}
    if wanted.strip().lstrip("-").isdecimal():
        rank = int(wanted)
        found = {mesh.mesh_id: (rank,) for mesh in incident.meshes if 0 <= rank < mesh.total}
        records = (record for record in incident.records if rank >= 0 and rank in (record.rank, *record.ranks))
        found.update((record.mesh_id, (rank,)) for record in records)
        if not found:
            known = "; ".join(f"{fold_ranks(range(mesh.total))} of {mesh.name}" for mesh in incident.meshes)
            raise SelectionError(f"no mesh of the failed program had a rank {rank}; expected one of {known or 'none'}")
        return found
    selection = parse(wanted)
    problem: SelectionError | None = None
    for mesh in incident.meshes:
        try:
            found[mesh.mesh_id] = resolve(selection, mesh.shape)
        except SelectionError as error:
            problem = problem or error
    if not found:
        raise problem or SelectionError("the failure file names no mesh; expected the number of a rank")
    return found


def _plain_hung(incident: Incident, hung: MergedMesh | None) -> Document:
    return {} if hung is None else {"stacks": to_builtins(hung), **to_builtins(incident.waits)}


def _hung(incident: Incident, record: FailureRecord, ranks: Sequence[int]) -> MergedMesh | None:
    """Return where ranks that have not answered are blocked, or None."""
    return _stacks(incident.hung, incident.mesh(record.mesh_id), ranks) if record.kind == "silent" else None


def _hanging(incident: Incident, record: FailureRecord, ranks: Sequence[int]) -> str:
    stacks = _hung(incident, record, ranks)
    if stacks is None:
        return ""
    found = replace(incident.hung, meshes=[stacks], left_out=0)
    lines = "".join(f"    {line}\n" for line in stack_lines(found)[1:])
    return f"  stacks   of {'this rank' if len(ranks) == 1 else 'these ranks'}\n{lines}"


def _healthy(incident: Incident, mesh: IncidentMesh, rank: int) -> str:
    coordinates = ", ".join(f"{label}={index}" for label, index in mesh.shape.coordinates(rank).items())
    who = f"rank {rank} of {mesh.name}" + (f" ({coordinates})" if coordinates else "")
    if rank not in mesh.alive:
        return f"{who} did not fail: its process had ended before\n"
    stacks = _stacks_of(incident, mesh, rank)
    if stacks is None:
        return f"{who} did not fail; its stack is not known: {incident.stacks_why or 'stacks not collected'}\n"
    # The script may not have waited for it: it waits in a hang, or blocks others.
    waits = incident.waits if incident.hang.reaches(mesh.mesh_id, rank) else Waits()
    found = MergedStacks(waits.waits, waits.waits_left_out, waits.unread, [stacks])
    lines = "".join(f"  {line}\n" for line in stack_lines(found)[1:])
    role = "did not fail"
    if incident.hang.keeps(mesh.mesh_id, rank):
        role = f"blocks other ranks: {shown(incident.hang.text)}"
    return f"{who} {role}; its stack at that time:\n{lines or _NOWHERE}"


def _stacks_of(incident: Incident, mesh: IncidentMesh, rank: int) -> MergedMesh | None:
    hangs = incident.hang.reaches(mesh.mesh_id, rank)
    return _stacks(incident.hang.stacks if hangs else incident.stacks, mesh, [rank])


def _stacks(stacks: MergedStacks, mesh: IncidentMesh, ranks: Sequence[int]) -> MergedMesh | None:
    """Return where ranks of a mesh were."""
    found = [each for each in stacks.meshes if each.mesh_id == mesh.mesh_id]
    try:
        return narrowed(found[0], ranks, mesh.shape) if found else None
    except ValueError:
        return None  # the file is damaged there


def _identity(record: FailureRecord, incident: Incident) -> Document:
    return {
        "mesh_id": record.mesh_id,
        "mesh": record.mesh,
        "actor": record.actor,
        "ranks": list(record.members),
        "likely": list(incident.likely(record)),
        "who": named(record),
        "what": record.headline,
    }


def _plain_cause(record: FailureRecord, verdict: Verdict, incident: Incident) -> Document | None:
    cause = verdict.cause_of(record)
    if cause is None:
        return None
    other = _identity(cause.record, incident) if cause.record is not None else None
    return {"evidence": cause.evidence, "why": cause.why, "record": other}

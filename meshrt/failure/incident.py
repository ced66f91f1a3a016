"""All that is known of one time at which something failed: what the report is made of, and what its file holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from meshrt.failure.causes import Verdict, judge
from meshrt.failure.hang import Hang
from meshrt.failure.record import FailureRecord, Plain, Reference
from meshrt.inspect.standstill import CYCLE

__all__ = ["FAILED", "HANDLED", "INTERRUPTED", "Incident", "IncidentMesh"]

#: How a program went on after an incident.
FAILED, HANDLED, INTERRUPTED = "failed", "handled", "interrupted"


@dataclass(slots=True)
class IncidentMesh(Plain):
    """A mesh as it was then.

    Attributes:
        sizes: By dimension.
        started: Seconds since the epoch.
        alive: Ranks that had not ended when the stacks were asked for.
    """

    mesh_id: str = ""
    name: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    started: float = 0.0
    alive: tuple[int, ...] = ()


@dataclass(slots=True)
class Incident(Plain):
    """See the module.

    Attributes:
        number: Counts the incidents of the program, from 1.
        run_id: The program, and ``argv`` what it was started as.
        began: When the first failure came, seconds since the epoch.
        records: Failures, in the order in which they came.
        left_out: So many more failures came than are kept.
        stacks: Where the ranks stood when the first one failed (`meshrt.inspect.plain`); empty until they are known.
        stacks_why: Why there are none.
        asked: When they were asked for it, on the root's monotonic clock, ns.
        hung: The stacks of those that did not answer; their ``culprits`` are those of ``where``.
        hang: What keeps these, where that is known.
        caller: The line of the script that was told.
        call: The call that it had made, ``"trainer.step()"``.
        error: What it was told, in one line.
        since: When that call was sent, monotonic ns.
        about: The failures that it was told of.
        outcome: `FAILED`: the program has ended by it, or nobody was told of it. `HANDLED`: it went on, and has ended
            otherwise. `INTERRUPTED`: a person has ended it while it waited. "": it still runs, or was ended before it
            could say so.
    """

    number: int = 0
    run_id: str = ""
    argv: tuple[str, ...] = ()
    began: float = 0.0
    meshes: tuple[IncidentMesh, ...] = ()
    records: tuple[FailureRecord, ...] = ()
    left_out: int = 0
    stacks: dict[str, Any] = field(default_factory=dict)
    stacks_why: str = ""
    asked: int = 0
    hung: dict[str, Any] = field(default_factory=dict)
    hang: Hang = field(default_factory=Hang)
    caller: str = ""
    call: str = ""
    error: str = ""
    since: int = 0
    about: tuple[Reference, ...] = ()
    outcome: str = ""

    def verdict(self) -> Verdict:
        """Find the root cause, of what the script was told if it was told something."""
        verdict = judge(self.records, self.since, self.about)
        hang = self.known_hang(verdict)
        return verdict if hang is None else replace(verdict, certainty=hang.certainty)

    def known_hang(self, verdict: Verdict) -> Hang | None:
        """Return why the ranks have not answered that are the root of a verdict; None where it is not known, or they
        are not.

        Whoever stands apart from the others is looked at before one that a person has stopped: that one may have been
        stopped to be looked at.
        """
        if not (verdict.silent and self.hang.certainty):
            return None
        return None if self.hang.kind != CYCLE and any(map(self.likely, verdict.roots)) else self.hang

    @property
    def waits(self) -> dict[str, Any]:
        """Who waited for whom, of those that did not answer, as `meshrt.inspect.waittext` has it."""
        return {key: self.hung[key] for key in ("waits", "waits_left_out") if key in self.hung}

    def likely(self, record: FailureRecord) -> tuple[int, ...]:
        """Return who probably keeps the others waiting, of ranks that did not answer: whom ``where`` would name.

        () where none of them stands apart, or where they stood is not known.
        """
        if record.kind != "silent":
            return ()
        try:
            found = [mesh["culprits"]["ranks"] for mesh in self.hung["meshes"] if mesh["mesh_id"] == record.mesh_id]
            apart = {rank for ranks in found for rank in ranks} & set(record.ranks)
        except (KeyError, TypeError, ValueError, AttributeError):  # a file may hold anything
            return ()
        return tuple(sorted(apart)) if apart < set(record.ranks) else ()

    def mesh(self, mesh_id: str) -> IncidentMesh:
        """Return what is known of a mesh."""
        return next((mesh for mesh in self.meshes if mesh.mesh_id == mesh_id), IncidentMesh(mesh_id))

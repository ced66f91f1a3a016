"""All that is known of one incident, a time at which something failed: the input of the report and of the file.

Part of it is where ranks were: those that did not fail, those that have not answered, and what blocks these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from meshrt.collectives.late import late_for
from meshrt.failure.causes import Verdict, is_consequence, judge
from meshrt.failure.hang import Hang, hang_of
from meshrt.failure.record import Document, FailureRecord, Plain, Reference, tolerant
from meshrt.hooks.facts import Answered
from meshrt.inspect.merged import NO_STACKS, MergedStacks, RankSet, Waits
from meshrt.inspect.standstill import LATE, STOPPED
from meshrt.inspect.tree import StackAnswer, Stacks
from meshrt.selection import Extent, Shape, fold_ranks

__all__ = ["FAILED", "HANDLED", "INTERRUPTED", "Incident", "IncidentMesh", "keep_stacks"]

#: How a program went on after an incident.
FAILED, HANDLED, INTERRUPTED = "failed", "handled", "interrupted"


class IncidentMesh(Plain, frozen=True):
    """A mesh at the time of the incident.

    Attributes:
        sizes: By dimension.
        started: Seconds since the epoch.
        alive: Ranks that had not ended when the stacks were requested.
    """

    mesh_id: str = ""
    name: str = ""
    sizes: dict[str, int] = msgspec.field(default_factory=dict)
    started: float = 0.0
    alive: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        """Its shape. Raises ValueError: the file is damaged."""
        return Shape.from_extent(Extent(tuple(self.sizes), tuple(self.sizes.values())))

    @property
    def total(self) -> int:
        """The number of its ranks."""
        return math.prod(self.sizes.values())


class Incident(msgspec.Struct, omit_defaults=True):
    """One incident.

    Attributes:
        number: Counts the incidents of the program, from 1.
        run_id: Id of the program; ``argv``: its command line.
        found_by: The run directory, if commands do not find the program by its id; else "".
        began: When the first failure came, seconds since the epoch.
        records: Failures, in the order in which they came.
        left_out: Number of further failures that are not kept.
        stacks: Stacks of the ranks when the first one failed; empty until they are known.
        stacks_why: Why there are no stacks.
        asked: When the stacks were requested, on the root's monotonic clock, ns.
        hung: The stacks of the ranks that did not answer; their ``culprits`` are those of ``where``.
        hang: What blocks these ranks, if that is known.
        caller: The line of the script that got the error.
        call: The call of that line, ``"trainer.step()"``.
        error: The error that it got, in one line.
        since: When that call was sent, monotonic ns.
        about: The failures that the error is about.
        outcome: `FAILED`: the program has ended by it, or no caller got an error. `HANDLED`: the program went on, and
            has ended otherwise, or failures have come for so long that this incident is over; who got the error may be
            another program that was connected to it. `INTERRUPTED`: the user has ended the program while it waited.
            "": it still runs, or was ended before it could write the outcome.
    """

    number: int = 0
    run_id: str = ""
    found_by: str = ""
    argv: tuple[str, ...] = ()
    began: float = 0.0
    meshes: tuple[IncidentMesh, ...] = ()
    records: tuple[FailureRecord, ...] = ()
    left_out: int = 0
    stacks: MergedStacks = NO_STACKS
    stacks_why: str = ""
    asked: int = 0
    hung: MergedStacks = NO_STACKS
    hang: Hang = Hang()
    caller: str = ""
    call: str = ""
    error: str = ""
    since: int = 0
    about: tuple[Reference, ...] = ()
    outcome: str = ""

    def to_plain(self) -> Document:
        """Return plain data; fields with their default are left out."""
        return {**self.outline(), "records": [record.to_plain() for record in self.records]}

    def outline(self) -> Document:
        """Return the same without the records."""
        plain: Document = msgspec.to_builtins(msgspec.structs.replace(self, records=()))
        return plain

    @classmethod
    def from_plain(cls, plain: object) -> Incident:
        """Inverse of `to_plain`; never raises, as a file may hold anything."""
        return tolerant(cls, plain)

    def verdict(self) -> Verdict:
        """Find the root cause: of the error that the script got, if it got one."""
        verdict = judge(self.records, self.since, self.about)
        hang = self.known_hang(verdict)
        return verdict if hang is None else replace(verdict, certainty=hang.certainty, ambiguous=False)

    def known_hang(self, verdict: Verdict) -> Hang | None:
        """Return why the ranks at the root of a verdict have not answered, or have given up to wait for others.

        None: that is not known, or they have failed by themselves.

        A rank that is at another place than the others comes before one that the user has stopped: the user may have
        stopped that rank only to look at it.
        """
        if not self.hang.certainty:
            return None
        if not verdict.silent:
            return self.hang if self.hang.kind == LATE and all(map(is_consequence, verdict.roots)) else None
        return None if self.hang.kind == STOPPED and any(map(self.likely, verdict.roots)) else self.hang

    @property
    def waits(self) -> Waits:
        """Which rank waited for which, of those that did not answer."""
        return Waits(self.hung.waits, self.hung.waits_left_out, self.hung.unread)

    def likely(self, record: FailureRecord) -> tuple[int, ...]:
        """Return which of the ranks that did not answer probably block the others: those that ``where`` would name.

        () if none of them is at another place than the others, or their stacks are not known.
        """
        if record.kind != "silent":
            return ()
        found = [mesh.culprits.ranks for mesh in self.hung.meshes if mesh.mesh_id == record.mesh_id]
        apart = {rank for ranks in found for rank in ranks} & set(record.ranks)
        return tuple(sorted(apart)) if apart < set(record.ranks) else ()

    def mesh(self, mesh_id: str) -> IncidentMesh:
        """Return what is known of a mesh."""
        return next((mesh for mesh in self.meshes if mesh.mesh_id == mesh_id), IncidentMesh(mesh_id))


def keep_stacks(incident: Incident, answers: Iterable[StackAnswer]) -> None:
    """Add the stacks in the answers of ranks to an incident."""
    answers = tuple(answers)
    failed = {(record.mesh_id, rank) for record in incident.records for rank in record.members}
    silent = [record for record in incident.records if record.kind == "silent"]
    if silent:
        addresses = {(record.mesh_id, rank) for record in silent for rank in record.ranks}
        # Where their other actors are is no evidence.
        called = {(record.mesh_id, record.actor) for record in silent}
        stacks = _merged(incident, answers, addresses.__contains__, called)
        incident.hung = stacks.answer()
        found = stacks.standstill((record.mesh_id, rank, record.actor) for record in silent for rank in record.ranks)
        if found is not None:
            reached = {(mesh_id, rank) for mesh_id, ranks in found.reached.items() for rank in ranks}
            incident.hang = hang_of(found, _without_culprits(_merged(incident, answers, reached.__contains__)))
            if incident.known_hang(incident.verdict()) is not None:  # otherwise the report does not show them elsewhere
                failed |= reached
    else:
        late = _late(incident, answers)
        if late is not None:
            incident.hang = late
            failed |= {(mesh_id, rank) for mesh_id, ranks in late.reached.items() for rank in ranks}
    incident.stacks = _without_culprits(_merged(incident, answers, lambda address: address not in failed))


def _late(incident: Incident, answers: Sequence[StackAnswer]) -> Hang | None:
    """Return which ranks have not entered the collective that others have given up in, if that is the root cause."""
    roots = judge(incident.records, incident.since, incident.about).roots
    if not roots or not all(map(is_consequence, roots)):
        return None
    failed = {(record.mesh_id, rank) for record in incident.records for rank in record.members}
    for record in roots:
        worlds = {
            rank: times.world
            for group in answers
            if isinstance(group, Answered) and group.mesh_id == record.mesh_id
            for rank, times in group.per.items()
            if times.world is not None and (group.mesh_id, rank) not in failed
        }
        late = late_for(record.world, worlds) if record.world is not None else None
        if late is not None:
            members = {(record.mesh_id, rank) for rank in late.ranks}
            stacks = _merged(incident, answers, members.__contains__)
            word = "rank" if len(late.ranks) == 1 else "ranks"
            has = "has" if len(late.ranks) == 1 else "have"
            ranks = fold_ranks(late.ranks)
            text = f"{record.actor} {word} {ranks} {has} not entered {late.collective}, in which others have failed"
            by_mesh = {record.mesh_id: late.ranks}
            return Hang(LATE, text, by_mesh, by_mesh, _without_culprits(stacks))
    return None


def _without_culprits(stacks: Stacks) -> MergedStacks:
    """Return merged stacks without culprits: it is known which rank has failed, or what blocks the others."""
    found = stacks.answer()
    meshes = [msgspec.structs.replace(mesh, culprits=RankSet()) for mesh in found.meshes]
    return msgspec.structs.replace(found, meshes=meshes)


def _merged(
    incident: Incident,
    answers: Iterable[StackAnswer],
    wanted: Callable[[tuple[str, int]], bool],
    called: Iterable[tuple[str, str]] = (),
) -> Stacks:
    stacks = Stacks()
    for mesh in incident.meshes:
        expected = [rank for rank in mesh.alive if wanted((mesh.mesh_id, rank))]
        if expected:
            compared = [actor for mesh_id, actor in called if mesh_id == mesh.mesh_id]
            stacks.expect(mesh.mesh_id, mesh.name, mesh.shape, expected, compared)
    for group in answers:  # all groups: they tell which rank waits for which
        stacks.add(group)
    return stacks

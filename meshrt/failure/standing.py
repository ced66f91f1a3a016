"""Where ranks were when one failed: those that did not fail, those that have not answered, and what blocks these."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from meshrt.failure.hang import hang_of
from meshrt.failure.incident import Incident
from meshrt.inspect.merged import MergedStacks, RankSet
from meshrt.inspect.tree import StackAnswer, Stacks
from meshrt.selection import Extent, Shape

__all__ = ["keep_stacks"]


def keep_stacks(incident: Incident, answers: Iterable[StackAnswer]) -> None:
    """Add the stacks in the answers of ranks to an incident."""
    answers = tuple(answers)
    failed = {(record.mesh_id, rank) for record in incident.records for rank in record.ranks or (record.rank,)}
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
    incident.stacks = _without_culprits(_merged(incident, answers, lambda address: address not in failed))


def _without_culprits(stacks: Stacks) -> MergedStacks:
    """Return merged stacks without culprits: it is known which rank has failed, or what blocks the others."""
    found = stacks.answer()
    return replace(found, meshes=[replace(mesh, culprits=RankSet()) for mesh in found.meshes])


def _merged(
    incident: Incident,
    answers: Iterable[StackAnswer],
    wanted: Callable[[tuple[str, int]], bool],
    called: Iterable[tuple[str, str]] = (),
) -> Stacks:
    stacks = Stacks()
    for mesh in incident.meshes:
        shape = Shape.from_extent(Extent(tuple(mesh.sizes), tuple(mesh.sizes.values())))
        expected = [rank for rank in mesh.alive if wanted((mesh.mesh_id, rank))]
        if expected:
            compared = [actor for mesh_id, actor in called if mesh_id == mesh.mesh_id]
            stacks.expect(mesh.mesh_id, mesh.name, shape, expected, compared)
    for group in answers:  # all groups: they tell which rank waits for which
        stacks.add(group)
    return stacks

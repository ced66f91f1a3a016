"""Ranks whose actors are looked at together, and the state of each rank.

For tools that show ranks and not actors. On the root's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from meshrt.errors import UsageError
from meshrt.program.states import State, state_of
from meshrt.program.targets import Targets
from meshrt.program.words import IDLE, RUNNING, WORST_FIRST

__all__ = ["Chosen", "choose"]

#: Most rows of one answer: a control message holds 1 MiB.
_MOST = 4000


@dataclass(frozen=True, slots=True)
class Chosen:
    """Ranks, and what they do.

    Attributes:
        targets: Base ranks, by mesh id.
        doing: Returns the known state of a rank, by mesh id and base rank; it asks no rank.

    Raises:
        UsageError: There are more ranks than one answer holds.
    """

    targets: Mapping[str, Sequence[int]]
    doing: Callable[[str, int], State]

    def __post_init__(self) -> None:
        count = sum(map(len, self.targets.values()))
        if count > _MOST:
            raise UsageError(f"{count} ranks are too many for one answer; choose up to {_MOST} with ranks(...)")

    def answering(self) -> dict[str, list[int]]:
        """Return the ranks that are not known to be dead or silent, by mesh id."""
        found = {
            mesh_id: [rank for rank in ranks if not self.doing(mesh_id, rank).silent]
            for mesh_id, ranks in self.targets.items()
        }
        return {mesh_id: ranks for mesh_id, ranks in found.items() if ranks}


def choose(targets: Targets, actor: str, ranks: str) -> Chosen:
    """Return the ranks that an actor and a selection denote ("": all), and what they do.

    Raises:
        UsageError: There is no such actor, or nothing runs.
        SelectionError: No such ranks.
    """
    found = targets.by_mesh(actor, ranks)
    if not found and (actor or ranks):
        raise UsageError("no rank can be selected: no rank runs")
    states = _states_of_ranks(targets)
    return Chosen(found, lambda mesh_id, rank: states.get((mesh_id, rank), State(IDLE)))


def _states_of_ranks(targets: Targets) -> dict[tuple[str, int], State]:
    """Return the state of every rank, by mesh id and base rank."""
    found: dict[tuple[str, int], State] = {}
    for actor in targets.actors():
        for rank, state in targets.states(actor).items():
            key = (actor.mesh.mesh_id, rank)
            found[key] = min(found.get(key, state), state, key=lambda each: WORST_FIRST.index(each.word))
    for mesh in targets.meshes():
        for rank in mesh.shape.ranks():
            if (mesh.mesh_id, rank) not in found:
                state = state_of(mesh, rank)
                found[mesh.mesh_id, rank] = replace(state, word=IDLE) if state.word == RUNNING else state
    return found

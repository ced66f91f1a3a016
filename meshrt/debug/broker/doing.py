"""Root side: what every rank does, whichever of its actors does it, for those who show ranks and not actors."""

from __future__ import annotations

from meshrt.debug.broker.states import State, state_of
from meshrt.debug.broker.targets import Targets
from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.inspect.chosen import Chosen, Doing
from meshrt.inspect.states import WORST_FIRST

__all__ = ["chosen"]


def chosen(targets: Targets, body: Body) -> Chosen:
    """Return the ranks that a request means by ``{actor, ranks}`` (both optional), and what they do.

    Raises:
        UsageError: There is no such actor.
        SelectionError: No such ranks.
    """
    found = _ranks(targets, str(body.get("actor", "")), str(body.get("ranks", "")))
    states = {key: _doing(state) for key, state in _states_of_ranks(targets).items()}
    return Chosen(found, lambda mesh_id, rank: states.get((mesh_id, rank), Doing("running")))


def _doing(state: State) -> Doing:
    return Doing(state.word, state.since, str(state.place) if state.place.line else "", state.note)


def _ranks(targets: Targets, actor: str, ranks: str) -> dict[str, list[int]]:
    """Return the base ranks that an actor and a selection ("": all) denote, by mesh id."""
    if not actor and not ranks:
        return {mesh.mesh_id: list(mesh.shape.ranks()) for mesh in targets.meshes()}
    found: dict[str, list[int]] = {}
    for part in targets.everywhere(actor, ranks, any_thread=True):
        mesh_id = part.actor.mesh.mesh_id
        found[mesh_id] = sorted({*found.get(mesh_id, ()), *part.ranks})
    if not found:
        raise UsageError("no actor runs, and ranks are chosen among those of actors; expected no choice")
    return found


def _states_of_ranks(targets: Targets) -> dict[tuple[str, int], State]:
    """Return the state of every rank, by mesh id and base rank."""
    found: dict[tuple[str, int], State] = {}
    for mesh in targets.meshes():
        for rank in mesh.shape.ranks():
            found[mesh.mesh_id, rank] = state_of(mesh, rank, None, None)
    for actor in targets.actors():
        for rank, state in targets.states(actor).items():
            key = (actor.mesh.mesh_id, rank)
            if WORST_FIRST.index(state.word) < WORST_FIRST.index(found[key].word):
                found[key] = state
    return found

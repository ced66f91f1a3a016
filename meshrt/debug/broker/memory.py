"""Root side: which ranks a person means by ``memory``, and what they do; `meshrt.memory` does the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshrt.debug.broker.states import State, state_of
from meshrt.debug.broker.targets import Targets
from meshrt.errors import UsageError
from meshrt.hooks import Body, RootServices, ToolClient, hooks
from meshrt.memory.root import MILLISECONDS, OBJECTS, Asked, RankState

__all__ = ["Memory"]

#: Of several actors of a rank, the one in the first of these states tells what the rank does.
_ORDER = ("dead", "not-answering", "post-mortem", "stopped", "blocked", "running")


class Memory:
    """The operation ``debug.memory``. On the root's loop."""

    def __init__(self, services: RootServices, targets: Targets) -> None:
        self._services = services
        self._targets = targets

    async def memory(self, client: ToolClient, body: Body) -> Body:
        """Return memory: of ``{actor, ranks, variables, frames, milliseconds, objects, references}``, all optional.

        Raises:
            UsageError: There is no such actor, or a limit is no limit.
            SelectionError: No such ranks.
        """
        actor, ranks = str(body.get("actor", "")), str(body.get("ranks", ""))
        targets: dict[str, list[int]] = {}
        if actor or ranks:
            for part in self._targets.everywhere(actor, ranks, any_thread=True):
                mesh_id = part.actor.mesh.mesh_id
                targets[mesh_id] = sorted({*targets.get(mesh_id, ()), *part.ranks})
            if not targets:
                raise UsageError("no actor runs, and ranks are chosen among those of actors; expected no choice")
        else:
            targets = {mesh.mesh_id: list(mesh.shape.ranks()) for mesh in self._targets.meshes()}
        states = self._states()
        asked = Asked(
            targets,
            lambda mesh_id, rank: states.get((mesh_id, rank), RankState("running")),
            self._targets.bare_name(actor) if actor else "",
            variables=bool(body.get("variables")),
            frames=bool(body.get("frames")),
            milliseconds=_limit(body, "milliseconds", MILLISECONDS),
            objects=_limit(body, "objects", OBJECTS),
            references=_name(body.get("references")),
            chosen=bool(actor or ranks),
        )
        hooks.load("memory", self._services, in_root=True)
        answer: Body = await self._services.tables["memory.view"].collect(asked)
        return answer

    def _states(self) -> dict[tuple[str, int], RankState]:
        found: dict[tuple[str, int], State] = {}
        for mesh in self._targets.meshes():
            for rank in mesh.shape.ranks():
                found[mesh.mesh_id, rank] = state_of(mesh, rank, None, None)
        for actor in self._targets.actors():
            for rank, state in self._targets.states(actor).items():
                key = (actor.mesh.mesh_id, rank)
                if _ORDER.index(state.word) < _ORDER.index(found[key].word):
                    found[key] = state
        return {key: RankState(state.word, _note(state)) for key, state in found.items()}


def _note(state: State) -> str:
    if state.note or not state.place.line or state.word == "running":
        return state.note
    return f"at {state.place}"


def _name(value: Any) -> str | None:
    """Return the beginning of a reference's name, or None."""
    if value is None or (isinstance(value, str) and all(letter in "0123456789abcdef" for letter in value)):
        return value
    raise UsageError(f"references are named by hexadecimal digits, as meshrt memory --refs shows them; not {value!r}")


def _limit(body: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a limit that was given: a number, or null for none."""
    value = body.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
        raise UsageError(f"{name} is a number, 0 or more, or null for no limit; not {value!r}")
    return value

"""What IDEs hold, as the root knows it. On the root's loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshrt.hooks.services import RootServices
from meshrt.program.places import NOWHERE, Place
from meshrt.program.states import State
from meshrt.program.words import STOPPED

__all__ = ["TABLE", "Held", "Holds", "held_by_ide"]

#: Where `RootServices.tables` has the ranks that IDEs hold.
TABLE = "dap.held"


@dataclass(frozen=True, slots=True)
class Held:
    """A rank that an IDE has: since when it is stopped there (epoch seconds; 0: it runs), and where, by actor.

    A thread of the user's own is listed as the actor "".
    """

    ide: str = ""
    since: float = 0.0
    places: Mapping[str, Place] = field(default_factory=dict)
    #: That IDE is gone.
    lost: bool = False

    def place_of(self, actor: str) -> Place | None:
        """Return where an actor is stopped, or another thread is if no actor is; None: the actor runs."""
        return self.places.get(actor) or (None if any(self.places) else self.places.get("", NOWHERE))


_FREE = Held()


class Holds:
    """The source of what IDEs hold (`meshrt.program.sources.HoldSource`).

    Args:
        held: By mesh id and base rank.
    """

    def __init__(self, held: Mapping[tuple[str, int], Held]) -> None:
        self._held = held

    def stopped(self, mesh_id: str, rank: int, actor: str) -> State | None:
        """Return the stopped state of an actor of a rank; None if it is not stopped."""
        held = self._held.get((mesh_id, rank), _FREE)
        place = held.place_of(actor) if held.since else None
        return None if place is None else State(STOPPED, held.since, place, f"in {held.ide}")


def held_by_ide(services: RootServices, mesh_id: str, rank: int) -> Held:
    """Return what an IDE holds of a rank; an empty `Held` if no IDE has it."""
    held: Held = services.tables.get(TABLE, {}).get((mesh_id, rank), _FREE)
    return held

"""A failure on its way to the owner of a mesh: what failed, as plain data, and the error that is made of it.

Ranks make it and receive it (`meshrt.actor.supervising`), the root passes it on (`meshrt.mesh.supervision`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from msgspec import structs

from meshrt.errors import ActorError, HostLost, MeshError, MeshFailure, ProcessDied, RankPlace, RemoteException
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation
from meshrt.wire.codec import own_attribute

__all__ = ["Decided", "Fault", "Lost", "Supervise", "lost_ranks", "mesh_failure"]

Lost = tuple[str, int, int]
"""A process that has ended: mesh id, base rank and pid (0 where it is not known)."""


class Fault(Data, frozen=True):
    """One rank that has ended (``fate``), or an exception there that no caller waits for (``remote``).

    ``what`` names the code that raised it: the endpoint, ``"a task"``, ``"thread 'loader'"``.
    """

    place: RankPlace
    fate: Fate | None = None
    remote: RemoteException | None = None
    what: str = ""

    def without_output(self) -> Fault:
        """Return it without what the rank has printed last."""
        fate = self.fate
        return self if fate is None else structs.replace(self, fate=replace(fate, log_tail=(), stack=""))

    def error(self) -> MeshError:
        """Make the error: the one that a call would have raised."""
        if self.fate is not None:
            return self.fate.error(self.place, "")
        return ActorError(self.place, self.what, self.remote or RemoteException("Exception", "", ""))


class Decided(Data, frozen=True):
    """Whether an actor has handled a failure; if not, perhaps what its method has done instead."""

    handled: bool
    raised: str = ""


class Supervise(Operation[Decided], frozen=True, tag="supervise"):
    """An actor is asked whether it handles a failure of a mesh that it has made.

    Attributes:
        actor: The actor that is asked.
        mesh_id, mesh: The mesh that has failed, and its name.
        notes: What earlier owners have done.
    """

    actor: str
    mesh_id: str
    mesh: str
    faults: Sequence[Fault]
    notes: Sequence[str]


def lost_ranks(error: BaseException) -> Iterator[Lost]:
    """Yield the processes that have ended according to an error, or to one that caused it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if issubclass(type(current), ProcessDied | HostLost):
            facts = own_attribute(current, "__dict__")
            for place in (facts["place"], *facts["others"]):
                yield place.mesh_id, place.rank, place.pid
        current = own_attribute(current, "__cause__") or own_attribute(current, "__context__")


def mesh_failure(mesh_id: str, name: str, faults: Iterable[Fault], notes: Iterable[str] = ()) -> MeshFailure:
    """Make the failure for an owner: the errors in the order of the ranks, with the decisions of earlier owners."""
    errors = tuple(fault.error() for fault in sorted(faults, key=lambda fault: fault.place.rank))
    for note in notes:
        errors[0].add_note(note)
    return MeshFailure(mesh_id, name, errors)

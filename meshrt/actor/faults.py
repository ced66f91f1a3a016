"""A failure on its way to the owner of a mesh: what failed, as plain data, and the error that is made of it.

Ranks make it and receive it (`meshrt.actor.supervising`), the root passes it on (`meshrt.mesh.supervision`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

from meshrt.errors import ActorError, HostLost, MeshError, MeshFailure, ProcessDied, RankPlace, RemoteException
from meshrt.wire.codec import own_attribute
from meshrt.wire.errors import error_from_wire, error_to_wire
from meshrt.wire.fate import Fate

__all__ = ["Fault", "Lost", "lost_ranks", "mesh_failure"]

Lost = tuple[str, int, int]
"""A process that has ended: mesh id, base rank and pid (0 where it is not known)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One rank that has ended (``fate``), or an exception there that no caller waits for (``remote``).

    ``what`` names the code that raised it: the endpoint, ``"a task"``, ``"thread 'loader'"``.
    """

    place: RankPlace
    fate: Fate | None = None
    remote: RemoteException | None = None
    what: str = ""

    def to_wire(self, *, brief: bool = False) -> dict[str, Any]:
        """Return plain data; ``brief``: without what the rank has printed last."""
        fate = self.fate
        if fate is not None and brief:
            fate = replace(fate, log_tail=(), stack="")
        return {
            "place": list(astuple(self.place)),
            "fate": fate and fate.to_wire(),
            "remote": self.remote and error_to_wire(self.remote, brief=True),
            "what": self.what,
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Fault:
        """Inverse of `to_wire`."""
        mesh_id, actor, rank, coordinates, host, pid = wire["place"]
        place = RankPlace(mesh_id, actor, rank, tuple((label, index) for label, index in coordinates), host, pid)
        fate = None if wire["fate"] is None else Fate.from_wire(wire["fate"])
        remote = None if wire["remote"] is None else error_from_wire(wire["remote"])
        return cls(place, fate, remote, wire["what"])

    def error(self) -> MeshError:
        """Make the error: the one that a call would have raised."""
        if self.fate is not None:
            return self.fate.error(self.place, "")
        return ActorError(self.place, self.what, self.remote or RemoteException("Exception", "", ""))


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

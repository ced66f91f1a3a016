"""A failure on its way to the owner of a mesh: what failed, as plain data, and the error that is made of it.

Ranks make it and receive it (`meshrt.actor.supervising`), the root passes it on (`meshrt.mesh.supervision`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from msgspec import structs

from meshrt.errors import (
    ActorAborted,
    ActorError,
    HostLost,
    MeshError,
    MeshFailure,
    MeshStopped,
    ProcessDied,
    RankPlace,
    RemoteException,
)
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation
from meshrt.wire.codec import own_attribute
from meshrt.wire.messages import ABORTED

__all__ = ["Decided", "Fault", "Lost", "Supervise", "ended_itself", "failed_inits", "lost_ranks", "mesh_failure"]

Lost = tuple[str, int, int]
"""A process that has ended: mesh id, base rank and pid (0 where it is not known).

An actor that has aborted: mesh id and number of the failure, with "/" between them, base rank and 0.
"""


class Fault(Data, frozen=True):
    """One rank that has ended (``fate``), or an exception there that no caller waits for (``remote``).

    ``what`` names the code that raised it: the endpoint, ``"a task"``, ``"thread 'loader'"``.
    """

    place: RankPlace
    fate: Fate | None = None
    remote: RemoteException | None = None
    what: str = ""

    def key(self) -> Lost | str:
        """Return what an error of a call names it by: the process that has ended, or the number of the exception."""
        if self.remote is not None and self.remote.type == ABORTED:
            return _aborted(self.place, self.remote.failure)
        if self.fate is None:
            return "" if self.remote is None else self.remote.failure
        return self.place.mesh_id, self.place.rank, self.fate.pid or self.place.pid

    def without_output(self) -> Fault:
        """Return it without what the rank has printed last."""
        fate = self.fate
        return self if fate is None else structs.replace(self, fate=replace(fate, log_tail=(), stack=""))

    def error(self) -> MeshError:
        """Make the error: the one that a call would have raised."""
        if self.fate is not None:
            return self.fate.error(self.place, "")
        if self.remote is not None and self.remote.type == ABORTED:
            return ended_itself(self.place, self.remote)
        return ActorError(self.place, self.what, self.remote or RemoteException("Exception", "", ""))


class Decided(Data, frozen=True):
    """Whether an actor has handled a failure; if not, perhaps what its method has done instead.

    Attributes:
        asked: False: there is no such method, or no such actor any more.
        traceback: Of what the method has raised.
    """

    handled: bool
    raised: str = ""
    asked: bool = True
    traceback: str = ""


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
    """Yield the processes, and the actors, that have ended according to an error, or to one that it comes from."""
    for each in _origins(error):
        if issubclass(type(each), ActorAborted):
            facts = own_attribute(each, "__dict__")
            yield _aborted(facts["place"], facts.get("failure", ""))
        if issubclass(type(each), ProcessDied | HostLost):
            facts = own_attribute(each, "__dict__")
            for place in (facts["place"], *facts["others"]):
                yield place.mesh_id, place.rank, place.pid


def ended_itself(
    place: RankPlace, remote: RemoteException, endpoint: str = "", *, may_have_run: bool = True
) -> MeshError:
    """Return the error about an actor that has ended itself."""
    if remote.type != ABORTED:
        stopped = MeshStopped(place, endpoint=endpoint, may_have_run=may_have_run)
        stopped.reason = remote.message
        return stopped
    aborted = ActorAborted(place, endpoint=endpoint, may_have_run=may_have_run)
    aborted.reason, aborted.failure = remote.message, remote.failure
    return aborted


def _aborted(place: RankPlace, failure: str) -> Lost:
    return f"{place.mesh_id}/{failure}", place.rank, 0


def failed_inits(error: BaseException) -> Iterator[tuple[RankPlace, str]]:
    """Yield the ranks, and the numbers of the failures, of each ``__init__`` that has raised according to an error."""
    for each in _origins(error):
        if issubclass(type(each), ActorError):
            facts = own_attribute(each, "__dict__")
            if facts["endpoint"] == "__init__" and facts["remote"].failure:
                yield facts["place"], facts["remote"].failure


def _origins(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those that caused it, and those that it stands for: of a rank, and of further ranks."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        current = left.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        left += [own_attribute(current, "__cause__") or own_attribute(current, "__context__")]
        if issubclass(type(current), ActorError):
            facts = own_attribute(current, "__dict__")
            left += [facts["exception"], *facts.get("others", ())]


def mesh_failure(mesh_id: str, name: str, faults: Iterable[Fault], notes: Iterable[str] = ()) -> MeshFailure:
    """Make the failure for an owner: the errors in the order of the ranks, with the decisions of earlier owners."""
    errors = tuple(fault.error() for fault in sorted(faults, key=lambda fault: fault.place.rank))
    for note in notes:
        errors[0].add_note(note)
    return MeshFailure(mesh_id, name, errors)

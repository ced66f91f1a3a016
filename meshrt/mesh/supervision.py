"""Who is told of a failure: the actor that made the mesh, then the owner of that actor's mesh, at last the script.

A failure of a mesh, on the root's loop::

    gathering --0.05 s--> asked --handled--> (over)
                            |---not handled, raised, no answer for 10 s, no such method---> asked, one owner higher
    at the top: the script's next wait (`meshrt.mesh.alarm`)

A rank that fails while an owner decides is a separate failure. The ranks of a mesh that is being stopped do not fail;
a failure just before its owner stopped it is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from meshrt.actor.faults import Decided, Fault, Supervise, mesh_failure
from meshrt.errors import MeshError, ProtocolError
from meshrt.hooks.fate import Fate
from meshrt.mesh.alarm import Alarm
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services

if TYPE_CHECKING:
    import asyncio

__all__ = ["Supervision"]

#: Seconds in which what fails on a mesh is taken together.
_TOGETHER = 0.05
#: Seconds that an owner has to decide; suspended while a user holds a rank.
_DECIDE = 10.0
#: From more faults on, an owner is not told what each rank has printed last: a control message has its limit.
_IN_FULL = 8


class _Failure:
    """What has failed on one mesh at about one time."""

    def __init__(self, record: MeshRecord) -> None:
        self.record = record
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        #: Who is to decide.
        self.asked: Owner | None = record.owner


class Supervision:
    """Passes each failure from owner to owner. On the root's loop."""

    def __init__(self, registry: Registry, services: Services, alarm: Alarm) -> None:
        self._registry = registry
        self._services = services
        self._alarm = alarm
        self._gathering: dict[str, _Failure] = {}
        #: The failures that are not decided.
        self._open: set[_Failure] = set()
        self._decided = threading.Condition()

    def lost(self, record: MeshRecord, rank: int, fate: Fate) -> None:
        """A rank has ended without a stop."""
        self._add(record, Fault(record.rank_place(rank), fate=fate))

    def stray(self, mesh_id: str, fault: Fault) -> None:
        """Code on a rank has raised an exception that no caller waits for."""
        record = self._registry.meshes.get(mesh_id)
        if record is None:
            self._unseen([fault])
        else:
            self._add(record, fault)

    def _add(self, record: MeshRecord, fault: Fault) -> None:
        failure = self._gathering.get(record.mesh_id)
        if failure is None:
            failure = self._gathering[record.mesh_id] = _Failure(record)
            self._open.add(failure)
            self._services.call_later(_TOGETHER, lambda: self._ask(self._gathering.pop(record.mesh_id)))
        failure.faults.append(fault)

    def settle(self, seconds: float) -> None:
        """Wait until everything is decided, while the owners that decide still exist. A thread of the script."""
        with self._decided:
            self._decided.wait_for(lambda: not self._open, seconds)

    def finish(self) -> None:
        """The program ends: what is not decided goes to the script. Any thread."""
        for failure in tuple(self._open):
            self._to_script(failure)

    def _over(self, failure: _Failure) -> bool:
        """Note that it is decided; returns whether it was already."""
        with self._decided:
            over = failure not in self._open
            self._open.discard(failure)
            self._decided.notify_all()
        return over

    def _ask(self, failure: _Failure) -> None:
        owner = failure.asked
        if owner is None:
            self._to_script(failure)
            return
        above = self._registry.meshes.get(owner.mesh_id)
        if above is None or owner.rank in above.fates or above.stopped is not None:
            # It ends, or has ended: if that is a failure, it is reported by itself.
            failure.asked = None if above is None else above.owner
            self._ask(failure)
            return
        if failure.record.stopped is not None and owner is failure.record.owner and not self._alarm.silent:
            # By this owner, which does not use its ranks any more; not by the end of the program.
            if not self._over(failure):
                self._unseen(failure.faults)
            return
        who = (
            f"{owner.actor or 'code'} on {above.name} {above.place(owner.rank)}, which has made {failure.record.name},"
        )
        decided: list[bool] = []

        def decide(note: str, *, handled: bool = False) -> None:
            if decided:
                return
            decided.append(True)
            if handled:
                if self._over(failure):
                    return
                count = len(failure.faults)
                what = "a failure" if count == 1 else f"{count} failures"
                self._services.announce(f"{what} of {failure.record.name}: handled by {owner.actor}.__supervise__()")
                return
            if note:
                failure.notes.append(f"{who} {note}")
            failure.asked = above.owner
            self._ask(failure)

        def answered(answer: asyncio.Future[Decided]) -> None:
            error = answer.exception()
            if error is None:
                decide(answer.result().raised, handled=answer.result().handled)
            else:
                decide("" if isinstance(error, MeshError) else f"{type(error).__name__}: {error}")

        def expired() -> None:
            if self._services.held():
                self._services.call_later(_DECIDE, expired)
            else:
                decide(f"has not decided within {_DECIDE:g} s")

        self._request(owner, failure).add_done_callback(answered)
        self._services.call_later(_DECIDE, expired)

    def _request(self, owner: Owner, failure: _Failure) -> asyncio.Future[Decided]:
        record, faults = failure.record, failure.faults
        brief = [fault.without_output() for fault in faults]
        request = Supervise(
            owner.actor, record.mesh_id, record.name, brief if len(faults) > _IN_FULL else faults, failure.notes
        )
        try:
            return self._services.ask_rank(owner.mesh_id, owner.rank, request)
        except ProtocolError:  # what the ranks have printed is too long for a control message
            return self._services.ask_rank(owner.mesh_id, owner.rank, structs.replace(request, faults=brief))

    def _to_script(self, failure: _Failure) -> None:
        if self._over(failure):
            return
        record = failure.record
        whole = mesh_failure(record.mesh_id, record.name, failure.faults, failure.notes)
        self._alarm.add(whole, lambda: self._unseen(failure.faults))

    def _unseen(self, faults: Iterable[Fault]) -> None:
        self._services.unseen += [fault.remote.failure for fault in faults if fault.remote is not None]

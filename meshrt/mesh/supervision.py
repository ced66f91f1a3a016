"""Who is told of a failure: the actor that has spawned what has failed, then the one that has spawned that, and so on.

A failure of a mesh, on the root's loop::

    gathering --0.05 s--> one failure for each owner
    asked --handled--> (over)
      |---no such method, and a call has told this owner---> (over)
      |---not handled, raised, no answer for 10 s, no such method---> asked, one owner higher
    at the top: the actor that has made the processes, if it was not asked; then the script (`meshrt.mesh.alarm`)

The owner of an actor is who has spawned it; of a process, the owners of the actors on it, or who has made it.
A rank that fails while an owner decides is a separate failure. The ranks of a mesh that is being stopped do not fail;
a failure just before its owner stopped it is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from meshrt.actor.faults import Decided, Fault, Lost, Supervise, mesh_failure
from meshrt.errors import MeshError, ProtocolError
from meshrt.hooks.fate import Fate
from meshrt.mesh.alarm import Alarm
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.wire.control import Address
from meshrt.wire.messages import ABORTED
from meshrt.wire.operations import Told

if TYPE_CHECKING:
    import asyncio

__all__ = ["Supervision"]

#: Seconds in which what fails on a mesh is taken together.
_TOGETHER = 0.05
#: Seconds that an owner has to decide; suspended while a user holds a rank.
_DECIDE = 10.0
#: From more faults on, an owner is not told what each rank has printed last: a control message has its limit.
_IN_FULL = 8
#: How many numbers of failures, and how much of what ranks were told, is remembered.
_REMEMBERED = 10_000


class _Failure:
    """What one owner is asked about of what has failed on one mesh at about one time."""

    def __init__(self, record: MeshRecord, owner: Owner | None = None) -> None:
        self.record = record
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        #: Who is to decide.
        self.asked = self.first = owner
        #: Who has been asked, or could not be.
        self.passed: set[Owner] = set()

    def numbers(self) -> set[str]:
        """Return the numbers of its exceptions."""
        return {fault.remote.failure for fault in self.faults if fault.remote is not None}


class Supervision:
    """Passes each failure from owner to owner. On the root's loop."""

    def __init__(self, registry: Registry, services: Services, alarm: Alarm) -> None:
        self._registry = registry
        self._services = services
        self._alarm = alarm
        self._gathering: dict[str, _Failure] = {}
        #: What ranks were told by calls of their own, the oldest first: ends of processes, failures of ``__init__``.
        self._told_by: dict[tuple[Lost | str, Address], None] = {}
        #: Numbers of exceptions that were an answer: a caller in the script that does not read it is noticed elsewhere.
        self._answered: deque[str] = deque(maxlen=_REMEMBERED)
        self._strays: deque[str] = deque(maxlen=1000)
        #: By the number of the failure of an ``__init__``: mesh id and name of the actor; the oldest first.
        self._inits: dict[str, tuple[str, str]] = {}
        #: The failures that are not decided.
        self._open: set[_Failure] = set()
        #: What has failed on meshes of the script's own process (`meshrt.mesh.own_ranks`): for the script alone.
        self._own: dict[str, list[Fault]] = {}
        self._decided = threading.Condition()
        services.on_report(Told, self._told)

    def lost(self, record: MeshRecord, rank: int, fate: Fate) -> None:
        """A rank has ended without a stop."""
        self._add(record, Fault(record.rank_place(rank), fate=fate))

    def stray(self, mesh_id: str, fault: Fault, *, answered: bool = False) -> None:
        """Code on a rank has raised an exception that no caller waits for; or (``answered``) an ``__init__`` has."""
        number = "" if fault.remote is None else fault.remote.failure
        if answered:
            self._answered.append(number)
        elif number in self._answered:
            self._answered.remove(number)  # reported once more: no caller will read it
        if number:
            if number in self._strays:
                return
            self._strays.append(number)
            if fault.what == "__init__":
                self._inits[number] = mesh_id, fault.place.actor
                while len(self._inits) > _REMEMBERED:
                    del self._inits[next(iter(self._inits))]
        record = self._registry.meshes.get(mesh_id)
        if record is not None:
            self._add(record, fault)
        elif mesh_id in self._registry.own:
            with self._decided:
                first = mesh_id not in self._own
                self._own.setdefault(mesh_id, []).append(fault)
            if first:
                self._services.call_later(_TOGETHER, lambda: self._own_to_script(mesh_id))
        else:
            self._unseen([fault])

    def _own_to_script(self, mesh_id: str) -> None:
        with self._decided:
            faults = self._own.pop(mesh_id, None)
            self._decided.notify_all()
            if faults is not None:
                self._alarm.add(mesh_failure(mesh_id, "this process", faults), lambda: self._unseen(faults))

    def _add(self, record: MeshRecord, fault: Fault) -> None:
        failure = self._gathering.get(record.mesh_id)
        if failure is None:
            failure = self._gathering[record.mesh_id] = _Failure(record)
            self._open.add(failure)
            self._services.call_later(_TOGETHER, lambda: self._share_out(self._gathering.pop(record.mesh_id)))
        failure.faults.append(fault)

    def _told(self, mesh_id: str, rank: int, told: Told) -> None:
        """Code on a rank was given an error by a call."""
        what: Lost | str = told.failure or (told.mesh, told.rank, told.pid)
        self._told_by[what, (mesh_id, rank)] = None
        while len(self._told_by) > _REMEMBERED:
            del self._told_by[next(iter(self._told_by))]
        if isinstance(what, tuple):
            self._alarm.noted(what)
        elif what in self._services.unseen:
            self._services.unseen.remove(what)

    def _share_out(self, gathered: _Failure) -> None:
        """Ask each owner about what is its own."""
        record = gathered.record
        shares: dict[Owner | None, _Failure] = {}
        for fault in gathered.faults:
            rank = fault.place.rank
            one = [record.owner_of(fault.place.actor, rank)] if fault.place.actor else record.owners_at(rank)
            for owner in one:
                shares.setdefault(owner, _Failure(record, owner)).faults.append(fault)
        with self._decided:
            if self._over(gathered):
                return
            self._open.update(shares.values())
        for failure in shares.values():
            self._ask(failure)

    def _ask_above(self, failure: _Failure, owner: Owner, above: MeshRecord | None) -> None:
        """Ask the owner of the one that was to decide."""
        failure.passed.add(owner)
        failure.asked = None if above is None else above.owner_of(owner.actor, owner.rank)
        if failure.asked in failure.passed:
            failure.asked = None
        self._ask(failure)

    def _knows(self, owner: Owner, failure: _Failure) -> bool:
        """Whether calls of its rank have told an owner of all that has failed."""
        told = {what for what, at in self._told_by if at == (owner.mesh_id, owner.rank)}
        # Each call to an actor reports its `__init__`, by the error of the first rank.
        inits = {self._inits.get(what) for what in told if isinstance(what, str)}
        return all(
            fault.key() in told or (fault.what == "__init__" and (fault.place.mesh_id, fault.place.actor) in inits)
            for fault in failure.faults
        )

    def settle(self, seconds: float) -> None:
        """Wait until everything is decided, while the owners that decide still exist. A thread of the script."""
        with self._decided:
            self._decided.wait_for(lambda: not self._open and not self._own, seconds)

    def finish(self) -> None:
        """The program ends: what is not decided goes to the script, which has it when this returns. Any thread."""
        with self._decided:
            for failure in tuple(self._open):
                self._to_script(failure)
            for mesh_id in tuple(self._own):
                self._own_to_script(mesh_id)

    def _over(self, failure: _Failure) -> bool:
        """Note that it is decided; returns whether it was already."""
        with self._decided:
            over = failure not in self._open
            self._open.discard(failure)
            self._decided.notify_all()
        return over

    def _ask(self, failure: _Failure) -> None:
        owner = failure.asked
        if owner is None and failure.record.owner not in (None, *failure.passed):
            owner = failure.asked = failure.record.owner
        if owner is None:
            self._to_script(failure)
            return
        above = self._registry.meshes.get(owner.mesh_id)
        if above is None or owner.rank in above.fates or above.stopped is not None:
            # It ends, or has ended: if that is a failure, it is reported by itself.
            self._ask_above(failure, owner, above)
            return
        own = owner in (failure.first, failure.record.owner)
        if own and failure.record.stopped is not None and not self._alarm.silent:
            # By this owner, which does not use its ranks any more; not by the end of the program.
            with self._decided:
                if not self._over(failure):
                    self._unseen(failure.faults)
            return
        who = f"{owner.actor or 'code'} on {above.name} {above.place(owner.rank)}"
        role = "creator of" if owner == failure.record.owner else "owner of the failed actor on"
        asked = f"{who} ({role} {failure.record.name})"
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
                failure.notes.append(f"{asked} {note}")
            self._ask_above(failure, owner, above)

        def answered(answer: asyncio.Future[Decided]) -> None:
            error = answer.exception()
            if error is None:
                self._answer(decide, who, owner, failure, answer.result())
            else:
                decide("" if isinstance(error, MeshError) else f"{type(error).__name__}: {error}")

        def expired() -> None:
            if self._services.held():
                self._services.call_later(_DECIDE, expired)
            else:
                decide(f"made no decision within {_DECIDE:g} s")

        self._request(owner, failure).add_done_callback(answered)
        self._services.call_later(_DECIDE, expired)

    def _answer(self, decide: Callable[..., None], who: str, owner: Owner, failure: _Failure, answer: Decided) -> None:
        if answer.traceback:  # although an owner above may handle the failure
            about = f"{who} raised in __supervise__(), which was called for a failure of {failure.record.name}"
            self._services.announce(f"{about}\n{answer.traceback.rstrip()}")
        if not answer.asked and self._knows(owner, failure):
            self._over(failure)  # by an error of a call, which is its to handle
        else:
            decide(answer.raised or ("did not handle the failure" if answer.asked else ""), handled=answer.handled)

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
        record = failure.record
        whole = mesh_failure(record.mesh_id, record.name, failure.faults, failure.notes)
        unread = () if failure.first is None else failure.numbers()  # the script spawned it: it does not read it
        with self._decided:  # else `finish` might return between the two, and the end of the program not know of it
            if not self._over(failure):
                self._alarm.add(whole, lambda: self._unseen(failure.faults, unread), quiet=record.singleton)

    def _unseen(self, faults: Iterable[Fault], unread: Container[str] = ()) -> None:
        """Note what is to be reported at the end; ``unread``: also answers, as their caller is not in the script."""
        exceptions = [fault.remote for fault in faults if fault.remote is not None]
        # An actor that has aborted is told of as a rank that has ended.
        numbers = [remote.failure for remote in exceptions if remote.type != ABORTED]
        self._services.unseen += [each for each in numbers if each in unread or each not in self._answered]

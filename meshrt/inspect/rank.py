"""The rank's side of inspection: reports where its threads are, and tells the root when an endpoint is blocked.

* operation ``inspect.stacks`` {actor, verbose}: the records of `meshrt.inspect.sampling`. A thread that was not blocked
  at the last pulse is looked at again after `BREATH` seconds and, if it has not used its processor, after `GAP` more.
* event ``inspect.progress`` {actor, endpoint, state, since, place, waits, beside}: sent when an actor's endpoint has
  been at one instruction at two pulses, when it waits for fewer ranks than before, and when it goes on or has ended.
  Nothing is sent for an endpoint that runs normally.
* event ``inspect.placed`` {actors}: ``[ident, name]`` of every actor that is not on the main thread, sent at each
  change. Always the whole list: the ident of a thread that has ended is reused.

Everything runs on the control thread except `RankInspector._exited`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from meshrt.hooks.facts import ActorState, Answer, Body, EndpointCall, Wait
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.inspect.sampling import Record, Sampler
from meshrt.inspect.stacks import Mark
from meshrt.inspect.visibility import own_index
from meshrt.inspect.waits import waits_to_wire
from meshrt.program.words import BLOCKED, IDLE, RUNNING, STANDING, STOPPED

__all__ = ["RankInspector", "load"]

#: Seconds between two looks: a thread that waits for the GIL wakes (and uses its processor) every 5 ms.
GAP = 0.008
#: Seconds without the GIL in which a thread that wants it uses its processor. A thread that returns to the event loop
#: waits for the GIL several times: 5 ms each, and more where many ranks share few processors.
BREATH = 0.001


class _Seen(NamedTuple):
    """What the root is told of a blocked endpoint."""

    state: str
    place: list[Any]
    waits: tuple[Wait, ...]
    beside: bool

    def to_wire(self) -> Body:
        return {"place": self.place, "waits": waits_to_wire(self.waits), "beside": self.beside}


_NOWHERE = _Seen(BLOCKED, ["", 0, ""], (), False)


class RankInspector:
    """Looks at the threads of this rank. On the control thread."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._sampler = Sampler(services)
        #: What the root was told last of each actor: state, place, since when, and which calls it waits for.
        self._told: dict[str, tuple[str, Any, float, tuple[Wait, ...]]] = {}
        self._placed: dict[str, int] = {}
        #: The calls that were reported to the root as blocked.
        self._standing: dict[str, EndpointCall] = {}

    def stacks(self, body: Body, answer: Answer) -> None:
        """Answer with the stacks of this rank.

        Args:
            body: ``actor``: the records of this actor only, "" for all; ``verbose``: also the runtime's own frames.
            answer: Called once, here or on the control thread `GAP` seconds later.
        """
        actor, verbose = str(body.get("actor", "")), bool(body.get("verbose"))

        def look() -> list[Record]:
            return self._sampler.records(self._services.actors(), actor=actor, verbose=verbose)

        def again() -> None:
            try:
                answer(_answer(look()), "")
            except Exception as error:
                answer(None, f"{type(error).__name__}: {error}")  # the caller waits for an answer

        records = look()
        if any(record.state == RUNNING for record in records):
            time.sleep(BREATH)
            records = look()
        # A thread that used its processor meanwhile runs. One that used none may have become blocked just now.
        if any(record.state == RUNNING and record.mark.load <= 0 for record in records):
            self._services.call_later(GAP, again)
        else:
            answer(_answer(records), "")

    def pulse(self) -> None:
        """Note where every thread and task is, and tell the root what has changed."""
        actors = self._services.actors()
        self._tell_places(actors)
        marks = self._sampler.pulse(actors)
        for name in self._told.keys() - {actor.name for actor in actors}:
            self._standing.pop(name, None)
            if self._told.pop(name)[0] in STANDING:
                self._notify(name, "", RUNNING, 0.0)
        for actor in actors:
            call, mark = marks.get(actor.name, (None, None))
            state, where = IDLE, None
            if mark is not None:
                state, where = (BLOCKED, mark.where) if mark.stands() else (RUNNING, None)
            told = self._told.get(actor.name, ("", None, 0.0, ()))
            since = mark.since if mark is not None and where is not None else 0.0
            seen = _NOWHERE
            # A resumed actor waits where it waited before; one that waits for many ranks soon waits for fewer.
            if state == BLOCKED and (told[:3] != (state, where, since) or told[3]):
                seen = self._look_at(actor)
                state = seen.state
            now = (state, where, since, seen.waits)
            # Other states are told only as the end of one of these.
            if now != told and (state in STANDING or told[0] in STANDING):
                self._tell(actor.name, call, state, mark, seen)
            self._told[actor.name] = now
        self._mind_exits()

    def _mind_exits(self) -> None:
        """Listen for the ends of endpoints only while one is blocked: each call would cost time otherwise."""
        if self._standing and self._exited not in hooks.endpoint_exit:
            hooks.endpoint_exit.append(self._exited)
        elif not self._standing and self._exited in hooks.endpoint_exit:
            hooks.endpoint_exit.remove(self._exited)

    def _exited(self, call: EndpointCall) -> None:
        """A call has ended: if it was reported as blocked, tell the root now, before the next pulse. On its thread."""
        if self._standing.get(call.actor) is call:
            del self._standing[call.actor]
            self._told.pop(call.actor, None)
            self._notify(call.actor, "", RUNNING, 0.0)

    def _look_at(self, actor: ActorState) -> _Seen:
        """Return whether an actor is blocked or stopped in the debugger, where, and which calls it waits for."""
        record = next(iter(self._sampler.records([actor], actor=actor.name)), None)
        if record is None or not record.stack:
            return _NOWHERE
        entry = record.stack[own_index([entry.file for entry in record.stack])]
        state = STOPPED if record.state == STOPPED else BLOCKED
        place = [entry.file, entry.line, entry.code.co_name]
        return _Seen(state, place, tuple(record.calls), record.beside)

    def _tell(self, actor: str, call: EndpointCall | None, state: str, mark: Mark | None, seen: _Seen) -> None:
        ago = time.monotonic() - mark.since if mark is not None and state in STANDING else 0.0
        self._standing.pop(actor, None)
        if call is not None and state == BLOCKED:
            self._standing[actor] = call
        self._notify(actor, call.endpoint if call is not None else "", state, ago, seen)

    def _notify(self, actor: str, endpoint: str, state: str, ago: float, seen: _Seen | None = None) -> None:
        since = time.time_ns() / 1e9 - ago
        body: Body = {"actor": actor, "endpoint": endpoint, "state": state, "since": since}
        body.update((seen or _NOWHERE).to_wire())
        self._services.notify("inspect.progress", body)

    def _tell_places(self, actors: Sequence[ActorState]) -> None:
        main = threading.main_thread().ident
        places = {actor.name: actor.thread for actor in actors if actor.thread not in (None, main)}
        if places != self._placed:
            self._services.notify("inspect.placed", {"actors": [[ident, name] for name, ident in places.items()]})
            self._placed = places


def _answer(records: list[Record]) -> Body:
    per: Body = {
        "since": [record.since() for record in records],
        "cpu": [round(min(1.0, record.mark.load), 3) for record in records],
    }
    if any(record.calls for record in records):
        per["waits"] = [waits_to_wire(record.calls) for record in records]
    return {"same": {"threads": [record.to_wire() for record in records]}, "per": per}


def load(services: RankServices) -> None:
    """Serve inspection. Called once, at the first pulse or the first request."""
    inspector = RankInspector(services)
    services.deferred_operations["inspect.stacks"] = inspector.stacks
    hooks.pulse.append(inspector.pulse)

"""The rank's side of inspection: answers where its threads are, and tells when an endpoint stands still.

* operation ``inspect.stacks`` {actor, verbose}: the records of `meshrt.inspect.sampling`. What did not stand already
  at the last pulse is looked at twice, `GAP` seconds apart; at once where a first look after `BREATH` sees it run.
* event ``inspect.progress`` {actor, endpoint, state, since, place}: when an actor's endpoint has stood at one
  instruction between two pulses, and when it goes on, or is no more. Nothing is sent for one that runs as it should.
* event ``inspect.placed`` {actors}: ``[ident, name]`` of every actor that is not on the main thread, whenever that has
  changed. All of them: the ident of a thread that has ended is given to another one.

On the control thread, but for `RankInspector._exited`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from meshrt.hooks import ActorState, Answer, Body, EndpointCall, RankServices, hooks
from meshrt.inspect.sampling import Record, Sampler
from meshrt.inspect.stacks import Mark
from meshrt.inspect.visibility import own_index

__all__ = ["RankInspector", "load"]

#: Seconds between two looks: a thread that waits for the GIL wakes (and uses its processor) every 5 ms.
GAP = 0.008
#: Seconds without the GIL in which a thread that wants it uses its processor. Whoever comes back to the event loop has
#: to wait for the GIL several times, 5 ms each and more where many ranks share few processors.
BREATH = 0.001


#: States that are told; of the others only that one of these is over.
_STANDING = ("blocked", "stopped")


class RankInspector:
    """Looks at the threads of this rank."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._sampler = Sampler(lambda: services.signals_sent)
        #: What the root was told last of each actor: state, and the mark it was told of.
        self._told: dict[str, tuple[str, Any, float]] = {}
        self._placed: dict[str, int] = {}
        #: The calls that the root was told to stand.
        self._standing: dict[str, EndpointCall] = {}

    def stacks(self, body: Body, answer: Answer) -> None:
        """Answer with the stacks of this rank."""
        actor, verbose = str(body.get("actor", "")), bool(body.get("verbose"))

        def look() -> list[Record]:
            return self._sampler.records(self._services.actors(), actor=actor, verbose=verbose)

        def again() -> None:
            try:
                answer(_answer(look()), "")
            except Exception as error:
                answer(None, f"{type(error).__name__}: {error}")  # who asked waits for it

        records = look()
        if any(record.state == "running" for record in records):
            time.sleep(BREATH)
            records = look()
        # Whatever used its processor meanwhile runs. What used none may only just have come to where it stands.
        if any(record.state == "running" and record.mark.load <= 0 for record in records):
            self._services.call_later(GAP, again)
        else:
            answer(_answer(records), "")

    def pulse(self) -> None:
        """Note where everything stands, and tell the root what has changed."""
        actors = self._services.actors()
        self._tell_places(actors)
        marks = self._sampler.pulse(actors)
        for name in self._told.keys() - {actor.name for actor in actors}:
            self._standing.pop(name, None)
            if self._told.pop(name)[0] in _STANDING:
                self._notify(name, "", "running", 0.0)
        for actor in actors:
            call, mark = marks.get(actor.name, (None, None))
            state, where = "idle", None
            if mark is not None:
                state, where = ("blocked", mark.where) if mark.stands() else ("running", None)
            told = self._told.get(actor.name, ("", None, 0.0))
            since = mark.since if mark is not None and where is not None else 0.0
            place: Sequence[Any] = ("", 0, "")
            if state == "blocked" and told != (state, where, since):
                # One that a person has let go waits where it waited before.
                state, place = self._place_of(actor)
            now = (state, where, since)
            if now != told and (state in _STANDING or told[0] in _STANDING):
                self._tell(actor.name, call, state, mark, place)
            self._told[actor.name] = now
        self._mind_exits()

    def _mind_exits(self) -> None:
        """Be told of the ends of endpoints only while one stands: every call would pay for it."""
        if self._standing and self._exited not in hooks.endpoint_exit:
            hooks.endpoint_exit.append(self._exited)
        elif not self._standing and self._exited in hooks.endpoint_exit:
            hooks.endpoint_exit.remove(self._exited)

    def _exited(self, call: EndpointCall) -> None:
        """A call has ended: if it was told to stand, that is over, and nobody waits for the next pulse. Its thread."""
        if self._standing.get(call.actor) is call:
            del self._standing[call.actor]
            self._told.pop(call.actor, None)
            self._notify(call.actor, "", "running", 0.0)

    def _place_of(self, actor: ActorState) -> tuple[str, Sequence[Any]]:
        """Return whether an actor that stands is blocked, or was stopped in the debugger, and where."""
        record = next(iter(self._sampler.records([actor], actor=actor.name)), None)
        if record is None or not record.stack:
            return "blocked", ("", 0, "")
        entry = record.stack[own_index([entry.file for entry in record.stack])]
        state = "stopped" if record.state == "stopped" else "blocked"
        return state, (entry.file, entry.line, entry.code.co_name)

    def _tell(self, actor: str, call: EndpointCall | None, state: str, mark: Mark | None, place: Sequence[Any]) -> None:
        ago = time.monotonic() - mark.since if mark is not None and state in _STANDING else 0.0
        self._standing.pop(actor, None)
        if call is not None and state == "blocked":
            self._standing[actor] = call
        self._notify(actor, call.endpoint if call is not None else "", state, ago, place)

    def _notify(self, actor: str, endpoint: str, state: str, ago: float, place: Sequence[Any] = ("", 0, "")) -> None:
        since = time.time_ns() / 1e9 - ago
        body = {"actor": actor, "endpoint": endpoint, "state": state, "since": since, "place": list(place)}
        self._services.notify("inspect.progress", body)

    def _tell_places(self, actors: Sequence[ActorState]) -> None:
        main = threading.main_thread().ident
        places = {actor.name: actor.thread for actor in actors if actor.thread not in (None, main)}
        if places != self._placed:
            self._services.notify("inspect.placed", {"actors": [[ident, name] for name, ident in places.items()]})
            self._placed = places


def _answer(records: list[Record]) -> Body:
    return {
        "same": {"threads": [record.to_wire() for record in records]},
        "per": {
            "since": [record.since() for record in records],
            "cpu": [round(min(1.0, record.mark.load), 3) for record in records],
        },
    }


def load(services: RankServices) -> None:
    """Serve inspection: called once, at the first pulse or by the first question."""
    inspector = RankInspector(services)
    services.deferred_operations["inspect.stacks"] = inspector.stacks
    hooks.pulse.append(inspector.pulse)

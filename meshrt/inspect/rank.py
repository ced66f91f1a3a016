"""The rank's side of inspection: answers where its threads are, and tells the root when an endpoint is blocked.

* `ReadStacks`: a thread that was not blocked at the last pulse is looked at again after `BREATH` seconds and, if it has
  not used its processor, after `GAP` more.
* `Progress` is reported when an actor's endpoint has been at one instruction at two pulses, when it waits for fewer
  ranks than before, and when it goes on or has ended; and when the actor was idle at two pulses, and is not any more.
  Nothing is reported for an endpoint that runs normally.
* `Placed` is reported at each change: the ident of a thread that has ended is reused.

Everything runs on the control thread except `RankInspector._exited`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from meshrt.collectives.facts import WorldFacts
from meshrt.collectives.reports import GroupReports
from meshrt.collectives.torch_groups import BlockedThread, is_in_torch, read_world
from meshrt.hooks.facts import ActorState, EndpointCall, Wait
from meshrt.hooks.operations import Answers, Grouped
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.inspect.operations import Placed, Progress
from meshrt.inspect.records import ReadStacks, Threads, Times
from meshrt.inspect.sampling import Sample, Sampler
from meshrt.inspect.stacks import Mark
from meshrt.inspect.visibility import own_index
from meshrt.program.places import NOWHERE, Place
from meshrt.program.words import BLOCKED, IDLE, NOT_RUNNING, RUNNING, STOPPED

__all__ = ["RankInspector", "load"]

#: Seconds between two looks: a thread that waits for the GIL wakes (and uses its processor) every 5 ms.
GAP = 0.008
#: Seconds without the GIL in which a thread that wants it uses its processor. A thread that returns to the event loop
#: waits for the GIL several times: 5 ms each, and more where many ranks share few processors.
BREATH = 0.001


class _Seen(NamedTuple):
    """What the root is told of a blocked endpoint."""

    state: str
    place: Place = NOWHERE
    waits: tuple[Wait, ...] = ()
    beside: bool = False
    world: WorldFacts | None = None


_NOWHERE = _Seen(BLOCKED)


class _Told(NamedTuple):
    """What the root was told last of an actor; ``where``: the instruction, None unless it is blocked."""

    state: str = ""
    where: tuple[object, ...] | None = None
    since: float = 0.0
    waits: tuple[Wait, ...] = ()


class RankInspector:
    """Looks at the threads of this rank. On the control thread."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._sampler = Sampler(services)
        self._told: dict[str, _Told] = {}
        self._placed: dict[str, int] = {}
        #: The actors that were reported as idle.
        self._idle: set[str] = set()
        #: How many calls each actor had begun at the last pulse: one that has served others since was not idle.
        self._begun: dict[str, int] = {}
        #: The calls that were reported to the root as blocked.
        self._halted: dict[str, EndpointCall] = {}

    def stacks(self, asked: ReadStacks, answer: Answers[Grouped[Threads, Times]]) -> None:
        """Answer with the stacks of this rank, here or on the control thread `GAP` seconds later."""

        def look() -> list[Sample]:
            return self._sampler.samples(self._services.actors(), actor=asked.actor, verbose=asked.verbose)

        def again() -> None:
            try:
                answer(self._answer(look()), "")
            except Exception as error:
                answer(None, f"{type(error).__name__}: {error}")  # the caller waits for an answer

        samples = look()
        if any(sample.state == RUNNING for sample in samples):
            time.sleep(BREATH)
            samples = look()
        # A thread that used its processor meanwhile runs. One that used none may have become blocked just now.
        if any(sample.state == RUNNING and sample.mark.load <= 0 for sample in samples):
            self._services.call_later(GAP, again)
        else:
            answer(self._answer(samples), "")

    def _answer(self, samples: Sequence[Sample]) -> Grouped[Threads, Times]:
        calls = [sample.calls for sample in samples]
        world = _name_collective(samples, self._services.actors())
        times = Times(
            [sample.since() for sample in samples],
            [round(min(1.0, sample.mark.load), 3) for sample in samples],
            calls if any(calls) else (),
            world,
        )
        return Grouped(Threads([sample.record() for sample in samples]), times)

    def pulse(self) -> None:
        """Note where every thread and task is, and tell the root what has changed."""
        actors = self._services.actors()
        self._tell_places(actors)
        marks = self._sampler.pulse(actors)
        for name in self._told.keys() - {actor.name for actor in actors}:
            self._halted.pop(name, None)
            if self._told.pop(name, _Told()).state in NOT_RUNNING or name in self._idle:
                self._report(name, "", RUNNING, 0.0)
            self._idle.discard(name)
            self._begun.pop(name, None)
        for actor in actors:
            call, mark = marks.get(actor.name, (None, None))
            state, where = IDLE, None
            if mark is not None:
                state, where = (BLOCKED, mark.where) if mark.is_blocked() else (RUNNING, None)
            told = self._told.get(actor.name, _Told())
            since = mark.since if mark is not None and where is not None else 0.0
            seen = _NOWHERE
            # A resumed actor waits where it waited before; one that waits for many ranks soon waits for fewer.
            if state == BLOCKED and (told[:3] != (state, where, since) or told.waits):
                seen = self._look_at(actor)
                state = seen.state
            now = _Told(state, where, since, seen.waits)
            # That it runs is told only as the end of another state.
            changed = now != told and (state in NOT_RUNNING or told.state in NOT_RUNNING)
            idle = state == IDLE == told.state and self._begun.get(actor.name) == actor.begun
            self._begun[actor.name] = actor.begun
            if changed or idle != (actor.name in self._idle):
                self._tell(actor.name, call, state if idle or state in NOT_RUNNING else RUNNING, mark, seen)
                (self._idle.add if idle else self._idle.discard)(actor.name)
            self._told[actor.name] = now
        self._mind_exits()

    def _mind_exits(self) -> None:
        """Listen for the ends of endpoints only while one is blocked: each call would cost time otherwise."""
        if self._halted and self._exited not in hooks.endpoint_exit:
            hooks.endpoint_exit.append(self._exited)
        elif not self._halted and self._exited in hooks.endpoint_exit:
            hooks.endpoint_exit.remove(self._exited)

    def _exited(self, call: EndpointCall) -> None:
        """A call has ended: if it was reported as blocked, tell the root now, before the next pulse. On its thread."""
        if self._halted.get(call.actor) is call:
            self._halted.pop(call.actor, None)  # a pulse on the control thread may have removed it meanwhile
            self._told.pop(call.actor, None)
            self._report(call.actor, "", RUNNING, 0.0)

    def _look_at(self, actor: ActorState) -> _Seen:
        """Return whether an actor is blocked or stopped in the debugger, where, and which calls it waits for."""
        sample = next(iter(self._sampler.samples([actor], actor=actor.name)), None)
        if sample is None or not sample.stack:
            return _NOWHERE
        entry = sample.stack[own_index([entry.file for entry in sample.stack])]
        state = STOPPED if sample.state == STOPPED else BLOCKED
        place = Place(entry.file, entry.line, entry.code.co_name)
        world = _name_collective([sample], [actor]) if state == BLOCKED else None
        return _Seen(state, place, tuple(sample.calls), sample.beside, world)

    def _tell(self, actor: str, call: EndpointCall | None, state: str, mark: Mark | None, seen: _Seen) -> None:
        ago = time.monotonic() - mark.since if mark is not None and state in NOT_RUNNING else 0.0
        self._halted.pop(actor, None)
        if call is not None and state == BLOCKED:
            self._halted[actor] = call
        self._report(actor, call.endpoint if call is not None else "", state, ago, seen)

    def _report(self, actor: str, endpoint: str, state: str, ago: float, seen: _Seen = _NOWHERE) -> None:
        since = time.time_ns() / 1e9 - ago
        self._services.report(Progress(actor, endpoint, state, since, seen.place, seen.waits, seen.beside, seen.world))

    def _tell_places(self, actors: Sequence[ActorState]) -> None:
        main = threading.main_thread().ident
        places = {actor.name: actor.thread for actor in actors if actor.thread is not None and actor.thread != main}
        if places != self._placed:
            self._services.report(Placed([(ident, name) for name, ident in places.items()]))
            self._placed = places


def _name_collective(samples: Sequence[Sample], actors: Sequence[ActorState]) -> WorldFacts | None:
    """Return the process groups of this rank. The sample that is blocked in a collective gets the name of that."""
    threads = {actor.name: actor.thread for actor in actors if actor.thread is not None}
    blocked = {
        sample.actor: sample
        for sample in samples
        if sample.kind == "actor" and sample.actor in threads and sample.state == BLOCKED and sample.stack
        if is_in_torch(sample.stack[-1].file, sample.waits)
    }
    world = read_world(
        [
            BlockedThread(threads[name], name, sample.since(), sample.waits.endswith(".wait"))
            for name, sample in blocked.items()
        ]
    )
    if world is not None and world.actor:
        blocked[world.actor].waits = world.groups[world.blocked].collective
    return world


def load(services: RankServices) -> None:
    """Serve inspection. Called once, at the first pulse or the first request."""
    inspector = RankInspector(services)
    services.serve_later(ReadStacks, inspector.stacks)
    hooks.pulse.append(inspector.pulse)
    hooks.pulse.append(GroupReports(services).pulse)

"""Looking at the threads of this very process, as the control thread of a rank does; what a frame waits in."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType
from typing import Any

import pytest
from msgspec import structs

from meshrt.hooks.facts import ActorState, EndpointCall, Wait
from meshrt.hooks.operations import Grouped, Report
from meshrt.hooks.table import hooks
from meshrt.inspect.operations import Placed, Progress
from meshrt.inspect.rank import RankInspector, load
from meshrt.inspect.records import ReadStacks, StackFrame, Threads, Times
from meshrt.inspect.sampling import Sample, Sampler, holder
from meshrt.inspect.stacks import Entry, frames_of
from meshrt.program.places import Place
from tests.support.waiting import wait_until

WAIT = 20


class Worker:
    """A thread that does what it is told, and the actor that it stands for."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread: threading.Thread | None = None
        self.stopped = False
        self.call: EndpointCall | None = EndpointCall("m", "worker", 0, "step", [])

    def wait(self) -> None:
        self.lock.acquire()

    def spin(self) -> None:
        while not self.over.is_set():
            pass

    @contextmanager
    def at(self, function: Callable[[], None]) -> Iterator[None]:
        self.over.clear()
        self.thread = threading.Thread(target=function, name="work")
        self.thread.start()
        # Before, its place is in threading.py, and two looks may find it there.
        wait_until(lambda: self.code() is function.__code__, WAIT)
        try:
            yield
        finally:
            self.over.set()
            self.lock.release()
            self.thread.join(WAIT)
            assert not self.thread.is_alive()

    def code(self) -> CodeType | None:
        """What its thread runs."""
        frame = sys._current_frames().get(self.thread.ident or 0) if self.thread is not None else None
        return frame.f_code if frame is not None else None

    def actor(self) -> ActorState:
        return ActorState("worker", self.thread.ident if self.thread else None, self.call, None)

    def record(self, sampler: Sampler) -> Sample:
        return sampler.samples([self.actor()], actor="worker")[0]


def test_a_thread_that_stands_is_blocked_from_the_second_look_on() -> None:
    worker, sampler = Worker(), Sampler()
    with worker.at(worker.wait):
        wait_until(lambda: worker.record(sampler).state == "blocked", WAIT)
        first = worker.record(sampler)
        assert (first.kind, first.actor, first.endpoint) == ("actor", "worker", "step")
        assert [entry.code.co_name for entry in first.stack] == ["wait"]
        assert first.waits == "self.lock.acquire" and first.mark.load == 0
        wait_until(lambda: worker.record(sampler).since() > first.since() + 0.05, WAIT)
        assert Sampler().samples([worker.actor()])[0].state == "running"  # one look tells nothing


def test_a_thread_that_spins_runs() -> None:
    worker, sampler = Worker(), Sampler()
    with worker.at(worker.spin):
        wait_until(lambda: worker.record(sampler).mark.load > 0, WAIT)
        assert worker.record(sampler).state == "running" and worker.record(sampler).since() == 0


def test_an_actor_without_a_call_is_idle_unless_it_is_in_user_code() -> None:
    worker, sampler = Worker(), Sampler()
    worker.call = None
    with worker.at(worker.wait):
        wait_until(lambda: worker.record(sampler).state == "blocked", WAIT)
        assert worker.record(sampler).endpoint == ""


def test_no_lock_is_needed() -> None:
    """A thread may stand at a breakpoint while it starts another one."""
    worker, sampler = Worker(), Sampler()
    found: list[Sample] = []
    with worker.at(worker.wait), threading._active_limbo_lock:  # type: ignore[attr-defined]
        found += sampler.samples([worker.actor()], actor="worker")
    assert [record.actor for record in found] == ["worker"]


def test_a_deep_stack_is_told_without_its_middle() -> None:
    code = test_a_deep_stack_is_told_without_its_middle.__code__
    frames = frames_of([Entry(code, number, 0) for number in range(1000)])
    assert len(frames) == 161
    assert frames[39].line == 39 and frames[40] == StackFrame(function="... 840 frames ...") and frames[-1].line == 999
    assert len(frames_of([Entry(code, number, 0) for number in range(161)])) == 161


class FakeServices:
    """RankServices with a clock that waits for nobody."""

    mesh_id = "m"
    signals_sent = signals_handled = 0
    signalled_ns = 0
    in_signal = False
    rank = 0
    pid = 1

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.events: list[Progress] = []
        self.placed: list[list[tuple[int, str]]] = []
        self.served: list[Any] = []
        self.wait: Wait | None = None
        self.looks = 0

    def actors(self) -> list[ActorState]:
        return [] if self.worker.stopped else [self.worker.actor()]

    def wait_of(self, waiter: object) -> Wait | None:
        # The same wait is older at each look, which is no news.
        self.looks += 1
        return self.wait and replace(self.wait, seconds=float(self.looks))

    def waits_since(self, thread: int) -> float | None:
        return None

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        assert seconds < 0.1
        time.sleep(seconds)
        function()

    def serve_later(self, operation: Any, handler: Any) -> None:
        self.served.append(operation)

    def report(self, report: Report) -> None:
        if isinstance(report, Placed):
            self.placed.append(list(report.actors))
        else:
            assert isinstance(report, Progress)
            self.events.append(report)


def test_two_looks_are_enough_for_the_first_question() -> None:
    worker = Worker()
    services: Any = FakeServices(worker)
    with worker.at(worker.wait):
        sampler = Sampler()
        wait_until(lambda: worker.record(sampler).state == "blocked", WAIT)
        answers: list[tuple[Grouped[Threads, Times] | None, str]] = []
        RankInspector(services).stacks(ReadStacks("worker"), lambda answer, why: answers.append((answer, why)))
    ((answer, why),) = answers
    assert answer is not None and answer.per is not None and not why
    (record,) = answer.same.threads
    assert record.state == "blocked" and len(answer.per.since) == len(answer.per.cpu) == 1


def test_a_thread_that_spins_is_known_without_waiting() -> None:
    """Every return to the event loop costs a wait for the GIL, and many ranks that compute make that a long one."""
    worker = Worker()
    services: Any = FakeServices(worker)
    services.call_later = lambda _seconds, _function: None
    inspector = RankInspector(services)
    answers: list[Grouped[Threads, Times] | None] = []

    def ask() -> bool:
        inspector.stacks(ReadStacks("worker"), lambda answer, _why: answers.append(answer))
        return bool(answers)

    with worker.at(worker.spin):
        wait_until(ask, WAIT)  # where it got no processor at all meanwhile, it is looked at again
    answer = answers[0]
    assert answer is not None and answer.per is not None
    assert answer.same.threads[0].state == "running" and answer.per.cpu[0] > 0


def test_only_changes_are_told() -> None:
    worker = Worker()
    services: Any = FakeServices(worker)
    inspector = RankInspector(services)
    events = services.events

    def pulse_until(condition: Callable[[], bool]) -> None:
        def pulsed() -> bool:
            inspector.pulse()
            return condition()

        wait_until(pulsed, WAIT)

    with worker.at(worker.wait):
        pulse_until(lambda: bool(events))
        (event,) = events
        assert (event.actor, event.endpoint, event.state) == ("worker", "step", "blocked")
        assert services.placed == [[(worker.actor().thread, "worker")]]
        assert event.place == Place(__file__, Worker.wait.__code__.co_firstlineno + 1, "wait")
        assert abs(event.since - time.time_ns() / 1e9) < WAIT
        for _ in range(3):
            inspector.pulse()
        assert len(events) == 1
        call, worker.call = worker.call, None
        told = []
        for _ in range(3):  # idle is what has been so for a whole pulse
            inspector.pulse()
            told.append([event.state for event in events[1:]])
        assert told == [["running"], ["running", "idle"], ["running", "idle"]]
    # Not where the other stopped: the ident of a thread that has ended is reused.
    with worker.at(worker.spin):
        worker.call = call
        inspector.pulse()
        assert [event.state for event in events[3:]] == ["running"]
        worker.call = None
        for _ in range(2):
            inspector.pulse()
        # It ends: another one may get its name.
        services.actors = list
        inspector.pulse()
        assert [event.state for event in events[4:]] == ["idle", "running"]


def test_who_waits_for_fewer_tells_so_though_it_stands_where_it_stood() -> None:
    """Or else one that has answered, and calls back, would be taken for a part of a cycle."""
    worker = Worker()
    services: Any = FakeServices(worker)
    services.wait = Wait("m", "worker", "ask", (1, 2), 2)
    inspector = RankInspector(services)

    def told(*waits: Wait) -> bool:
        inspector.pulse()
        return [event.waits[0] for event in services.events] == list(waits)

    with worker.at(worker.wait):
        both, one = (Wait("m", "worker", "ask", ranks, len(ranks)) for ranks in ((1, 2), (2,)))
        wait_until(lambda: told(both), WAIT)
        assert told(both)
        services.wait = Wait("m", "worker", "ask", (2,), 1)
        assert told(both, one) and told(both, one)
        first, second = services.events
        assert structs.replace(first, waits=(), since=0.0) == structs.replace(second, waits=(), since=0.0)


def test_an_actor_that_is_stopped_is_not_blocked_any_more() -> None:
    worker = Worker()
    services: Any = FakeServices(worker)
    inspector = RankInspector(services)

    def blocked() -> bool:
        inspector.pulse()
        return bool(services.events)

    with worker.at(worker.wait):
        wait_until(blocked, WAIT)
        worker.stopped = True
        inspector.pulse()
        assert [event.state for event in services.events] == ["blocked", "running"]
        # Its thread may end now, and another one get its ident.
        assert services.placed == [[(worker.actor().thread, "worker")], []]


def test_loading_serves_the_operation_and_the_pulse() -> None:
    services: Any = FakeServices(Worker())
    before = list(hooks.pulse)
    try:
        load(services)
        assert services.served == [ReadStacks]
        assert len(hooks.pulse) == len(before) + 2
    finally:
        hooks.pulse[:] = before


class Probe:
    """Everything one can do with it asks what its caller's caller stands in."""

    def __init__(self) -> None:
        self.seen = ""
        self.inner = self
        self.items = [self]

    def ask(self, *_args: Any) -> Probe:
        frame = sys._getframe(1)
        self.seen = holder(frame.f_code, frame.f_lasti)
        return self

    def __enter__(self) -> None:
        self.enter()

    def enter(self) -> None:
        frame = sys._getframe(2)
        self.seen = holder(frame.f_code, frame.f_lasti)

    def __exit__(self, *_exc: object) -> None:
        pass

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        frame = sys._getframe(1)
        self.seen = holder(frame.f_code, frame.f_lasti)
        raise StopIteration


GLOBAL = Probe()


def test_a_call() -> None:
    probe = Probe()
    probe.ask()
    assert probe.seen == "probe.ask"
    probe.inner.inner.ask(1, [2], "x")
    assert probe.seen == "probe.inner.inner.ask"
    GLOBAL.inner.ask()
    assert GLOBAL.seen == "GLOBAL.inner.ask"
    probe.items[0].ask()
    assert probe.seen == "probe.items.ask"


def test_a_call_over_several_lines_and_in_another_one() -> None:
    probe = Probe()
    str(
        probe.inner.ask(
            1,
            2,
        )
    )
    assert probe.seen == "probe.inner.ask"


def test_a_name_of_an_outer_function() -> None:
    probe = Probe()

    def inner() -> None:
        probe.ask()

    inner()
    assert probe.seen == "probe.ask"


def test_a_plain_function() -> None:
    seen = []

    def wait_here() -> None:
        frame = sys._getframe(1)
        seen.append(holder(frame.f_code, frame.f_lasti))

    wait_here()
    assert seen == ["wait_here"]


def test_entering_and_iterating() -> None:
    probe = Probe()
    with probe.inner:
        assert probe.seen == "with probe.inner"
    for _ in probe:
        pass
    assert probe.seen.startswith("for")


def test_a_very_long_name() -> None:
    probe = Probe()
    probe.inner.inner.inner.inner.inner.inner.inner.inner.inner.inner.inner.inner.ask()
    assert len(probe.seen) == 60 and probe.seen.endswith(" ...")


@pytest.mark.parametrize("lasti", [-1, 0, 1, 10_000])
def test_nothing_to_tell(lasti: int) -> None:
    assert holder(test_nothing_to_tell.__code__, lasti) == ""

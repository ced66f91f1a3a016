"""Calls whose time has passed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from meshrt.transport.clock import HoldClock
from meshrt.transport.expiry import Expiry


class Timers:
    """Time and timers, driven by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.set: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        assert seconds >= 0
        self.set.append((self.now + seconds, function))

    def go_to(self, moment: float) -> None:
        self.now = moment
        due = [function for when, function in self.set if when <= moment]
        self.set = [(when, function) for when, function in self.set if when > moment]
        for function in due:
            function()


class Call:
    def __init__(self) -> None:
        self.finished = False
        self.expired: list[float] = []

    def expire(self, seconds: float) -> None:
        self.finished = True
        self.expired.append(seconds)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    return Timers(monkeypatch)


@pytest.fixture
def clock() -> HoldClock:
    return HoldClock()


@pytest.fixture
def expiry(timers: Timers, clock: HoldClock) -> Expiry:
    return Expiry(clock, timers.later)


def test_it_looks_when_the_clock_has_gone_forward(timers: Timers, expiry: Expiry, clock: HoldClock) -> None:
    first, second = Call(), Call()
    expiry.add(first, 20)
    expiry.add(second, 60)
    assert expiry.due() == clock.now() + 20
    clock.hold(True)
    clock.advance(30)
    expiry.look()
    assert (first.expired, second.expired) == ([20], []) and expiry.due() == clock.now() + 30
    clock.hold(False)
    timers.go_to(131)
    timers.go_to(200)
    assert second.expired == [60]


def test_what_is_not_done_in_time_expires(timers: Timers, expiry: Expiry) -> None:
    late, soon, answered = Call(), Call(), Call()
    for call, seconds in ((late, 3.0), (soon, 1.0), (answered, 2.0)):
        expiry.add(call, seconds)
    timers.go_to(101.0)
    assert (late.expired, soon.expired) == ([], [1.0])
    answered.finished = True
    timers.go_to(103.0)
    assert (late.expired, answered.expired) == ([3.0], [])
    assert not timers.set


def test_time_at_a_breakpoint_does_not_count(timers: Timers, clock: HoldClock, expiry: Expiry) -> None:
    call = Call()
    expiry.add(call, 1.0)
    timers.go_to(100.5)
    clock.hold(True)
    timers.go_to(160.0)
    assert not call.expired
    clock.hold(False)
    timers.go_to(160.4)
    assert not call.expired
    timers.go_to(160.6)
    assert call.expired == [1.0]


def test_calls_that_are_done_are_not_kept(expiry: Expiry) -> None:
    """A program that makes many calls with a long time-out does not grow."""
    for _ in range(10_000):
        call = Call()
        expiry.add(call, 3600.0)
        call.finished = True
    assert len(expiry._entries) < 2_500
    dropped = [Call() for _ in range(10_000)]
    for call in dropped:
        expiry.add(call, 3600.0)
    assert len(expiry._entries) >= 10_000
    del dropped, call
    for _ in range(15_000):
        expiry.add(Call(), 3600.0)
    assert len(expiry._entries) < 25_000

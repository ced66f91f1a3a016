"""Deadlines of many, by one timer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from meshrt.transport.deadlines import Deadlines


class Clock:
    """Time and timers, driven by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        assert seconds >= 0
        self.timers.append((self.now + seconds, function))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [function for when, function in self.timers if when <= self.now]
        self.timers = [(when, function) for when, function in self.timers if when > self.now]
        for function in due:
            function()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_each_expires_at_its_time_whatever_their_order(clock: Clock) -> None:
    expired: list[str] = []
    deadlines: Deadlines[str] = Deadlines(clock.later, expired.append)
    for name, at in (("third", 103.0), ("first", 101.0), ("second", 102.0), ("done", 101.5)):
        deadlines.set(name, at)
    deadlines.drop("done")
    seen = []
    for _ in range(3):
        clock.wait(1.0)
        seen.append([*expired])
    assert seen == [["first"], ["first", "second"], ["first", "second", "third"]]
    assert not clock.timers


def test_one_may_get_more_time(clock: Clock) -> None:
    expired: list[str] = []
    deadlines: Deadlines[str] = Deadlines(clock.later, expired.append)
    deadlines.set("slow", 101.0)
    deadlines.set("slow", 103.0)
    clock.wait(2.0)
    assert expired == []
    clock.wait(1.0)
    assert expired == ["slow"]


def test_many_share_one_timer(clock: Clock) -> None:
    deadlines: Deadlines[int] = Deadlines(clock.later, lambda _number: None)
    for number in range(1000):
        deadlines.set(number, clock.now + 5.0)
        clock.now += 0.001
    assert len(clock.timers) == 1


def test_a_timer_that_calls_too_early_is_set_again(clock: Clock) -> None:
    expired: list[str] = []
    deadlines: Deadlines[str] = Deadlines(clock.later, expired.append)
    deadlines.set("one", 101.0)
    ((_, early),) = clock.timers
    clock.timers.clear()
    clock.now = 100.999
    early()
    assert expired == []
    clock.wait(0.001)
    assert expired == ["one"]


def test_one_that_is_late_already_expires_at_once(clock: Clock) -> None:
    expired: list[str] = []
    deadlines: Deadlines[str] = Deadlines(clock.later, expired.append)
    deadlines.set("late", 99.0)
    clock.wait(0.0)
    assert expired == ["late"]

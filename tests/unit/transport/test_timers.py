"""Timers are called at their time, in order, and not while others are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from meshrt.transport import timers as module
from meshrt.transport.timers import Timers


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def run(timers: Timers) -> None:
    for function in timers.due():
        function()


def test_they_are_called_by_time_and_then_in_the_order_in_which_they_were_added(clock: Clock) -> None:
    timers, called = Timers(), list[str]()
    for name, seconds in (("c", 2), ("a", 1), ("b", 1), ("never", 60)):
        timers.add(seconds, lambda name=name: called.append(name))  # type: ignore[misc]
    assert timers.wait() == 1
    run(timers)
    assert called == []
    clock.now += 1
    assert timers.wait() == 0
    run(timers)
    assert called == ["a", "b"] and timers.wait() == 1
    clock.now += 5
    run(timers)
    assert called == ["a", "b", "c"] and timers.wait() == 54


def test_what_is_added_by_a_timer_waits_for_the_next_look(clock: Clock) -> None:
    """A loop that goes on in slices serves others in between."""
    timers, called = Timers(), list[int]()

    def go_on() -> None:
        called.append(len(called))
        timers.add(0, go_on)

    timers.add(0, go_on)
    for count in (1, 2, 3):
        run(timers)
        assert len(called) == count and timers.wait() == 0


def test_there_is_nothing_to_wait_for() -> None:
    assert Timers().wait() is None and Timers().due() == []

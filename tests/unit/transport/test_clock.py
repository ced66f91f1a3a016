"""The clock of time-outs: monotonic, and suspended while anything is held."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.hooks.table import hooks
from meshrt.transport import clock as clock_module
from meshrt.transport.clock import Deadline, HoldClock

STEPS = st.lists(st.one_of(st.floats(0, 100), st.booleans()), max_size=30)


class Time:
    """A clock that shows what the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: self.now))


def test_it_goes_forward_also_while_it_is_held() -> None:
    clock = HoldClock()
    clock.hold(True)
    deadline = Deadline(clock.now, 60)
    clock.advance(59)
    assert deadline.left() == pytest.approx(1)
    clock.hold(False)
    clock.advance(2)
    assert deadline.left() < 0


def test_it_is_suspended_while_held_and_continues_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    time, clock = Time(monkeypatch), HoldClock()
    start = clock.now()
    time.now += 5
    assert clock.now() - start == 5
    clock.hold(True)
    time.now += 100
    clock.hold(True)
    time.now += 100
    clock.hold(False)
    time.now += 100
    assert clock.now() - start == 5
    clock.hold(False)
    assert clock.now() - start == 5
    time.now += 2
    assert clock.now() - start == 7


def test_ending_a_hold_that_never_began_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    time, clock = Time(monkeypatch), HoldClock()
    clock.hold(False)
    clock.hold(True)
    time.now += 1
    assert clock.now() == 1000


@given(STEPS)
def test_it_counts_exactly_the_time_without_holds(steps: list[float | bool]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        time, clock = Time(monkeypatch), HoldClock()
        holds, passed = 0, 0.0
        for step in steps:
            if isinstance(step, bool):
                clock.hold(step)
                holds = max(0, holds + (1 if step else -1))
            else:
                time.now += step
                passed += 0 if holds else step
            assert clock.now() == pytest.approx(1000 + passed)


def test_hooks_are_told_of_the_first_hold_and_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(hooks, "hold_changed", [told.append])
    clock = HoldClock()
    for held in (False, True, True, False, False, False, True):
        clock.hold(held)
    assert told == [True, False, True]


def test_a_thread_that_runs_what_a_user_has_typed_has_a_clock_that_is_not_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, clock = Time(monkeypatch), HoldClock()
    before = Deadline(clock.of_thread(), 10)
    clock.typed(True)
    clock.hold(True)
    typed = Deadline(clock.of_thread(), 10)
    time.now += 4
    assert (before.left(), typed.left()) == (10, 6)
    clock.typed(False)
    after = Deadline(clock.of_thread(), 10)
    time.now += 4
    assert (before.left(), typed.left(), after.left()) == (10, 2, 10)

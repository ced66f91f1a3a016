"""When a pause interrupts what blocks, and what is said if nothing stops: on a clock of the test."""

from __future__ import annotations

import pytest

from meshrt.debug.dap.rank.passing import Pause
from meshrt.errors import MeshError
from meshrt.hooks.facts import EndpointCall
from tests.unit.debug.fakes import FakeRankServices

WHEN = "at the next line of Python code, unless mesh c cancels the pause"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Paused:
    """A rank whose pause was asked for."""

    def __init__(self) -> None:
        self.clock, self.services, self.said = Clock(), FakeRankServices(), list[str]()
        self.pause = Pause(self.services, self.said.append, self.clock)
        assert self.pause.until_kick() is None
        self.pause.ask()

    def after(self, seconds: float, *, standing: bool = False) -> int:
        """Look so many seconds after the pause; returns how often the main thread was interrupted."""
        self.clock.now = 100.0 + seconds
        self.pause.kick_if_due(standing)
        return self.services.signals_sent


def test_three_times_and_then_it_is_said() -> None:
    paused = Paused()
    assert paused.pause.until_kick() == pytest.approx(0.1)
    assert [paused.after(seconds) for seconds in (0.05, 0.1, 0.2, 0.3, 0.9)] == [0, 1, 1, 2, 2]
    assert not paused.said
    assert paused.after(1.5) == 3
    assert paused.said == [f"not paused yet: no endpoint is running; the rank stops {WHEN}"]
    assert paused.pause.until_kick() is None and paused.after(9) == 3


@pytest.mark.parametrize("end", ["stopped", "over"])
def test_what_ends_it(end: str) -> None:
    paused = Paused()
    getattr(paused.pause, end)()
    # Where another thread stands, the main thread is interrupted once, so that it stands too.
    assert paused.after(5, standing=True) == paused.after(9) == (1 if end == "stopped" else 0)
    assert not paused.said


def test_a_rank_that_cannot_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = Paused()

    def refuse() -> None:
        raise MeshError("its signal is the user's")

    monkeypatch.setattr(paused.services, "signal_main", refuse)
    paused.after(5)
    assert paused.said == ["a call that blocks cannot be paused: its signal is the user's"]
    assert paused.pause.until_kick() is None


def test_what_does_not_stop_is_named() -> None:
    paused = Paused()
    for ident, actor in enumerate(("first", "second")):
        paused.services.calls[ident] = EndpointCall("m1", actor, 0, "step", [])
    for seconds in (1, 2, 3):
        paused.after(seconds)
    (text,) = paused.said
    assert "step() of second waits or is in C code, on its own thread; only the first actor" in text
    del paused.services.calls[1]
    paused.pause.ask()
    for seconds in (4, 5, 6):
        paused.after(seconds)
    assert "step() of first is in C code or in an await" in paused.said[-1]

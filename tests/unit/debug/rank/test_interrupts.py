"""What interrupts of the main thread reach: the line that was meant, as long as it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.debug.rank.interrupts import Interrupts
from meshrt.debug.rank_operations import InterruptRank, WithdrawInterrupt
from meshrt.hooks.facts import EndpointCall
from tests.unit.debug.fakes import FakeRankServices


class Services(FakeRankServices):
    """A rank whose main thread is at work on a line, and waits in a ``get()`` there."""

    def __init__(self) -> None:
        super().__init__()
        self.calls[threading.main_thread().ident or 0] = EndpointCall("m1", "worker", 0, "step", [])
        self.later: list[Callable[[], None]] = []
        self.waiting: list[Callable[[Any], None]] = []

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.append(function)

    def interject(self, function: Callable[[Any], None]) -> bool:
        self.waiting.append(function)
        return True


def test_an_interrupt_is_of_the_line_that_runs() -> None:
    services = Services()
    session: Any = SimpleNamespace(running=5, stopped=True, ident=threading.get_ident(), place=lambda: "train.py:7")
    sessions: Any = SimpleNamespace(of_thread=lambda _ident: session)
    interrupts = Interrupts(services, sessions, SimpleNamespace(), None)  # type: ignore[arg-type]
    assert interrupts.ask(InterruptRank("worker")).state == "asked"
    with pytest.raises(KeyboardInterrupt):
        services.waiting.pop()(None)

    # The next line is interrupted, too, although it was not yet looked whether the first one has ended.
    session.running = 6
    assert interrupts.ask(InterruptRank("worker")).state == "asked"
    first, second = services.later
    first()
    with pytest.raises(KeyboardInterrupt):
        services.waiting.pop()(None)

    # A line that has ended by itself is not; and nothing is tried any more.
    session.running = 7
    interrupts.ask(InterruptRank("worker"))
    session.running = 0
    services.waiting.pop()(None)
    sent = services.signals_sent
    for function in (second, services.later[-1]):
        function()
    assert (len(services.later), services.signals_sent) == (3, sent)


def test_what_a_debug_command_runs_is_stopped_and_its_line_goes_on() -> None:
    services = Services()
    session: Any = SimpleNamespace(running=5, stopped=False, ident=threading.get_ident(), place=lambda: "train.py:7")
    sessions: Any = SimpleNamespace(of_thread=lambda _ident: session)
    interrupts = Interrupts(services, sessions, SimpleNamespace(), None)  # type: ignore[arg-type]
    assert interrupts.ask(InterruptRank("worker")).state == "asked"
    assert not services.waiting and interrupts.pending


def asked() -> tuple[Services, Interrupts]:
    """A request for the main thread, which runs this test."""
    services = Services()
    sessions: Any = SimpleNamespace(of_thread=lambda _ident: None)
    tracer: Any = SimpleNamespace(disarm=lambda _ident: None)
    interrupts = Interrupts(services, sessions, tracer, None)
    assert interrupts.ask(InterruptRank("worker")).state == "asked"
    return services, interrupts


def test_a_stop_for_another_reason_answers_a_request() -> None:
    """Or the rank would stop once more when it is resumed."""
    services, interrupts = asked()
    interrupts.stopped()
    assert not interrupts.pending
    sent = services.signals_sent
    services.later.pop()()
    assert (services.later, services.signals_sent) == ([], sent)


def test_a_request_that_was_withdrawn_stops_nothing_and_another_one_does() -> None:
    services, interrupts = asked()
    interrupts.withdraw(WithdrawInterrupt("nobody"))
    interrupts.withdraw(WithdrawInterrupt("worker"))
    sent = services.signals_sent
    services.later.pop()()
    assert (services.later, services.signals_sent) == ([], sent)  # no more signals for it
    assert interrupts.ask(InterruptRank("worker")).state == "asked"
    assert services.signals_sent == sent + 1
    interrupts.withdraw(WithdrawInterrupt("worker"))
    interrupts.on_signal(None)  # the thread runs
    assert not interrupts.pending

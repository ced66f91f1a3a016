"""SIGINT and SIGTERM in the rank of a script: for the script and its exit alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from meshrt.actor import script_signals
from meshrt.actor.script_signals import hold_signals, of_script


class Preempted(Exception):
    pass


def preempt(_number: int, _frame: FrameType | None) -> None:
    raise Preempted


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    script_signals._theirs.clear()
    script_signals._held.clear()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_one_before_the_script_interrupts_it_as_it_begins() -> None:
    hold_signals()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), of_script():
        pytest.fail("it has begun")
    with of_script():
        pass  # it was for the part before


def test_the_script_has_the_handlers_that_scripts_have() -> None:
    hold_signals()
    with of_script():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with pytest.raises(KeyboardInterrupt), of_script():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_of_the_script_is_called_in_its_parts_alone(number: signal.Signals) -> None:
    hold_signals()
    with of_script():
        signal.signal(number, preempt)
    signal.raise_signal(number)
    with pytest.raises(Preempted), of_script():
        pytest.fail("it has begun")
    signal.raise_signal(number)
    with pytest.raises(Preempted), of_script():
        pytest.fail("it has begun")


def test_one_that_is_ignored_stays_so() -> None:
    hold_signals()
    with of_script():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.raise_signal(signal.SIGTERM)
    with of_script():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_part_in_a_part_changes_nothing() -> None:
    hold_signals()
    with of_script():
        signal.signal(signal.SIGINT, preempt)
        with of_script():
            pass
        assert signal.getsignal(signal.SIGINT) is preempt


def test_a_process_that_holds_none_keeps_its_handlers() -> None:
    before = signal.getsignal(signal.SIGINT)
    with of_script():
        assert signal.getsignal(signal.SIGINT) is before


def test_one_that_c_code_has_taken_stays_there_and_the_other_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    hold_signals()
    real = signal.getsignal
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGINT else real(number))
    with of_script():
        assert real(signal.SIGTERM) is signal.SIG_DFL
    assert real(signal.SIGTERM) is real(signal.SIGINT)  # both held

"""SIGINT in the rank of a script: for the script and its exit alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from meshrt.actor.held_interrupts import hold_interrupts, interruptible


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_one_before_the_script_interrupts_it_as_it_begins() -> None:
    hold_interrupts()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible():
        pytest.fail("it has begun")
    with interruptible():
        pass  # it was for the part before


def test_one_in_the_script_interrupts_it() -> None:
    hold_interrupts()
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGINT)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_behind_it_interrupts_its_exit() -> None:
    hold_interrupts()
    with interruptible():
        pass
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible():
        pytest.fail("it has begun")


@pytest.mark.parametrize("own", [signal.SIG_IGN, lambda *_: None], ids=["ignored", "function"])
def test_a_handler_of_the_script_stays(own: signal.Handlers) -> None:
    hold_interrupts()
    with interruptible():
        signal.signal(signal.SIGINT, own)
    assert signal.getsignal(signal.SIGINT) is own
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is own


def test_a_process_that_holds_none_keeps_its_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is before

"""The shield: Ctrl-C waits for the end of a section, and is not lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from meshrt.transport.interrupts import Shield


@pytest.fixture
def shield() -> Iterator[Shield]:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    made = Shield()
    made.install()
    yield made
    made.uninstall()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_inside_comes_at_the_end(shield: Shield) -> None:
    shield.close()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        shield.open()
    shield.close()
    shield.open()


def test_an_interrupt_outside_comes_at_once(shield: Shield) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_neither_close_nor_open_it(shield: Shield) -> None:
    thread = threading.Thread(target=shield.close)
    thread.start()
    thread.join(10)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_users_handler_is_left_alone() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    try:
        shield = Shield()
        shield.install()
        shield.close()
        signal.raise_signal(signal.SIGINT)
        shield.open()
        shield.uninstall()
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)

"""What was given for a message that is not sent is taken back, whatever comes meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from meshrt.store.unsent import Unsent
from meshrt.transport.interrupts import Shield
from tests.support.waiting import wait_until


@pytest.fixture
def shield() -> Iterator[Shield]:
    found = Shield()
    found.install()
    yield found
    found.uninstall()


def test_the_last_first_and_once() -> None:
    taken: list[int] = []
    with Unsent() as unsent:
        for number in range(3):
            unsent.note(lambda number=number: taken.append(number))  # type: ignore[misc]
    assert taken == [2, 1, 0]
    unsent.__exit__()
    assert len(taken) == 3


def test_what_was_sent_is_not() -> None:
    taken: list[int] = []
    with Unsent() as unsent:
        unsent.note(lambda: taken.append(0))
        unsent.sent()
    assert not taken


def test_an_interrupt_meanwhile_comes_a_little_later(shield: Shield) -> None:
    taken: list[int] = []

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        taken.append(1)

    def fails() -> None:
        with Unsent() as unsent:
            unsent.note(lambda: taken.append(2))
            unsent.note(interrupted)
            raise ValueError("of the call")

    with pytest.raises(ValueError, match="of the call"):
        fails()
    assert taken == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        wait_until(lambda: False, 20)

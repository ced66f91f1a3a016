"""The shield: Ctrl-C waits for the end of a section, and is not lost."""

from __future__ import annotations

import _thread
import signal
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from meshrt.transport.interrupts import Shield, called_by_python
from tests.support.waiting import wait_until


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


def test_the_next_one_takes_over_what_another_thread_could_not_give_back(shield: Shield) -> None:
    thread = threading.Thread(target=shield.uninstall)
    thread.start()
    thread.join(10)
    following = Shield()
    following.install()
    with following:
        signal.raise_signal(signal.SIGINT)
        assert following.pending and not shield.pending
        following.pending = False
    following.uninstall()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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


class Dropped:
    """Something whose end does what a test wants."""

    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do

    @called_by_python
    def __del__(self) -> None:
        self.do()


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def press_inside(shield: Shield) -> None:
    shield.close()
    try:
        press()
    finally:
        shield.open()


@pytest.mark.parametrize("where", ["at once", "in a section", "in a section around"])
def test_a_finalizer_swallows_no_interrupt(where: str, shield: Shield) -> None:
    """Neither one that comes while it runs, nor one that it has held back itself; and it is not cut short."""
    over: list[str] = []

    def end() -> None:
        press_inside(shield) if where == "in a section" else press()
        over.append("the finalizer")

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # at which instruction it comes nobody knows
        if where == "in a section around":
            shield.close()
        Dropped(end)
        assert over
        if where == "in a section around":
            shield.open()
        wait_until(lambda: False, 20, "an interrupt")
    assert over == ["the finalizer"]


@pytest.mark.parametrize("raising", [Shield.check, Shield.open])
def test_a_finalizer_swallows_no_interrupt_where_no_thread_can_be_started(
    raising: Callable[[Shield], None], shield: Shield, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    over: list[str] = []

    def end() -> None:
        press_inside(shield)
        press()
        over.append("the finalizer")

    monkeypatch.setattr(_thread, "start_new_thread", full)
    Dropped(end)
    assert over
    shield.close()
    try:
        with pytest.raises(KeyboardInterrupt):
            raising(shield)
    finally:
        if raising is Shield.check:
            shield.open()
    shield.close()
    shield.open()


def test_a_callback_of_a_weak_reference_swallows_no_interrupt(shield: Shield) -> None:
    dropped = Dropped(lambda: None)
    weakref.finalize(dropped, signal.raise_signal, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # as above
        del dropped
        wait_until(lambda: False, 20, "an interrupt")


def test_one_that_takes_part_is_respected_by_the_handler_that_is_in_place(shield: Shield) -> None:
    other = Shield()
    other.take_part()
    other.close()
    signal.raise_signal(signal.SIGINT)
    assert other.pending and not shield.pending
    with pytest.raises(KeyboardInterrupt):
        other.open()
    other.leave()
    other.close()
    with pytest.raises(KeyboardInterrupt):  # it is not asked any more
        signal.raise_signal(signal.SIGINT)
    other.open()


def test_one_that_takes_part_where_there_is_none_is_the_handler_until_it_leaves() -> None:
    alone = Shield()
    alone.take_part()
    alone.close()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        alone.open()
    alone.leave()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

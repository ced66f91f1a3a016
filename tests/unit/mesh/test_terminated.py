"""When the handler of SIGTERM is in place, with a wait that the test makes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshrt.mesh.terminated import Terminated


class Driver:
    """Runs at once what is to be run in a wait."""

    wait_ended: Callable[[], None] | None = None
    main_loop = None
    began: float | None = 0.0

    @property
    def waits(self) -> Driver:
        return self

    def since(self, _thread: int) -> float | None:
        return self.began

    def longest_await(self, _loop: object) -> None:
        return None

    def interject(self, function: Callable[[Any], None]) -> bool:
        function(None)
        return True


class Loop:
    """Calls what is due when the test says so."""

    def __init__(self) -> None:
        self.due: Callable[[], None] = lambda: None

    def call_later(self, _seconds: float, function: Callable[[], None]) -> None:
        self.due = function


@pytest.fixture(autouse=True)
def _leaves_the_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def watched() -> tuple[Driver, Loop]:
    driver, loop = Driver(), Loop()
    Terminated(driver, lambda _task, _awaited: None).start(loop)  # type: ignore[arg-type]  # as much of a driver as it needs
    return driver, loop


def test_it_is_there_while_the_main_thread_waits() -> None:
    driver, loop = watched()
    driver.began = None
    loop.due()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    driver.began = 0.0  # long ago
    loop.due()
    assert callable(signal.getsignal(signal.SIGTERM))
    assert driver.wait_ended is not None
    driver.wait_ended()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert driver.wait_ended is None


@pytest.mark.parametrize("own", [signal.SIG_IGN, lambda *_: None])
def test_a_handler_of_the_program_stays(own: Any) -> None:
    driver, loop = watched()
    signal.signal(signal.SIGTERM, own)
    loop.due()
    assert signal.getsignal(signal.SIGTERM) is own
    assert driver.wait_ended is None


def test_one_that_the_program_sets_in_the_meantime_stays() -> None:
    driver, loop = watched()
    loop.due()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert driver.wait_ended is not None
    driver.wait_ended()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_thread_that_blocks_the_signal_gets_no_handler() -> None:
    """The signal would come to another thread, and end nothing for as long as the wait lasts."""
    _driver, loop = watched()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        loop.due()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    loop.due()
    assert callable(signal.getsignal(signal.SIGTERM))

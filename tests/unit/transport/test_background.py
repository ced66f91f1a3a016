"""The thread of a connection: timers, and links that are read only while that is wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from meshrt.transport.background import BackgroundThread
from tests.support.waiting import wait_until


class Driver:
    """Counts what is read."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.polls = 0

    def fileno(self) -> int:
        return self.fd

    def poll_nowait(self) -> None:
        os.eventfd_read(self.fd)
        self.polls += 1


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    os.close(made.fd)


def test_links_are_read_while_that_is_wanted(driver: Driver) -> None:
    thread = BackgroundThread()
    thread.start(driver)
    os.eventfd_write(driver.fd, 1)
    done: list[str] = []
    thread.call_later(0, lambda: done.append("a"))
    wait_until(lambda: done == ["a"])
    assert driver.polls == 0
    thread.switch(True)
    wait_until(lambda: driver.polls == 1)
    thread.close()
    thread.close()  # the second time is fine


def test_what_raises_does_not_end_it(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    thread = BackgroundThread()
    thread.start(driver)
    done: list[str] = []
    thread.call_later(0, lambda: done[0])
    thread.call_later(0, lambda: done.append("b"))
    wait_until(lambda: done == ["b"])
    assert "IndexError" in caplog.text
    thread.close()


def test_one_that_was_never_started_is_closed() -> None:
    BackgroundThread().close()

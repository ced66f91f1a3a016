"""What threads and tasks are told to wait for, and for how long they have."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from meshrt.hooks.facts import Wait
from meshrt.transport.driver import Driver
from meshrt.transport.pending import Pending
from tests.support.waiting import wait_until

CALL = Wait("m", "actor", "step", (3,), 1)


class Called(Pending):
    """A call that rank 3 has not answered."""

    def awaited(self) -> Wait | None:
        return None if self.finished else CALL


@pytest.fixture
def pending(driver: Driver) -> Pending:
    return Called(driver)


def test_a_thread_that_waits_is_known_until_it_waits_no_more(driver: Driver, pending: Pending) -> None:
    thread = threading.Thread(target=driver.wait, args=(pending, 60))
    thread.start()
    ident = thread.ident or 0
    wait_until(lambda: driver.waits.of(ident))
    wait = driver.waits.of(ident)
    assert wait is not None and wait == CALL
    assert wait.left is not None and 0 < wait.left <= 60
    assert driver.waits.all() == [CALL] and driver.waits.since(ident) is not None
    pending.finish()
    driver.wake()
    thread.join(10)
    assert driver.waits.of(ident) is None and driver.waits.since(ident) is None and driver.waits.all() == []


def test_what_is_done_is_waited_for_no_more(driver: Driver, pending: Pending) -> None:
    driver.waits_for(1, pending)
    driver.waits_for(2, Pending(driver))
    assert driver.waits.all() == [CALL], "the other one is no call"
    pending.finish()
    assert driver.waits.all() == []


def lines_of(driver: Driver) -> list[str]:
    return [wait.line for wait in driver.waits.all()]


def test_the_line_of_a_thread_that_waits_is_known(driver: Driver, pending: Pending) -> None:
    def waits() -> None:
        driver.wait(pending, 60)

    thread = threading.Thread(target=waits)
    thread.start()
    wait_until(lambda: driver.waits.all())
    assert lines_of(driver) == [f"{__file__}:{waits.__code__.co_firstlineno + 1}"]
    pending.finish()
    driver.wake()
    thread.join(10)


def test_the_line_of_a_task_that_waits_is_the_innermost_of_the_user(driver: Driver, pending: Pending) -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(outer())
        await asyncio.sleep(0)
        driver.waits_for(task, pending)
        assert lines_of(driver) == [f"{__file__}:{inner.__code__.co_firstlineno + 1}"]
        task.cancel()

    async def outer() -> None:
        await inner()

    asyncio.run(main())


def test_the_longest_await_of_a_loop(driver: Driver, pending: Pending) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(2)]
        driver.waits_for(threading.get_ident(), pending)
        for task in tasks:
            driver.waits_for(task, pending)
        found = driver.waits.longest_await(loop)
        assert found is not None and found[:2] == (tasks[0], pending)
        assert driver.waits.longest_await(None) is None
        other: Any = object()
        assert driver.waits.longest_await(other) is None

    asyncio.run(main())

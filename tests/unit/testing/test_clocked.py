"""Event loops and mailboxes whose time is set, and that say whether they wait."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.testing.clocked import ClockedLoop, ClockedMailbox, _Callers, is_readable
from tests.support.waiting import wait_until

WAIT = 20


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.released = False

    def time(self) -> float:
        return self.now


class Running:
    """A loop on a thread of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = ClockedLoop(self.clock)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def run(self, function: Callable[[], object]) -> None:
        """Run something on the loop, and wait until it is quiet again."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(function)
        self.loop.call_soon_threadsafe(done.set)
        done.wait(WAIT)
        self.settle()

    def settle(self) -> None:
        wait_until(self.loop.is_quiet, WAIT, "the loop is quiet")

    def go_to(self, moment: float) -> None:
        self.clock.now = moment
        rounds = self.loop.rounds
        self.loop.wake()
        wait_until(lambda: self.loop.rounds > rounds, WAIT, "it has looked")
        self.settle()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT)
        self.loop.close()


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.close()


def test_timers_are_due_by_the_clock_alone(running: Running) -> None:
    rung: list[float] = []
    cancelled: list[asyncio.TimerHandle] = []

    def begin() -> None:
        for seconds in (60, 30, 90):
            running.loop.call_later(seconds, lambda: rung.append(running.loop.time()))
        cancelled.append(running.loop.call_later(10, rung.append, 0.0))

    running.run(begin)
    running.run(cancelled[0].cancel)
    assert running.loop.due() == 30 and not rung
    running.go_to(30)
    assert rung == [30] and running.loop.due() == 60
    running.go_to(95)
    assert rung == [30, 95, 95] and running.loop.due() is None


def test_time_passes_by_itself_once_it_is_released(running: Running) -> None:
    rung = threading.Event()
    running.run(lambda: running.loop.call_later(0.01, rung.set))
    running.clock.released = True
    running.clock.now = 5.0
    running.loop.wake()
    assert rung.wait(WAIT)


def test_it_is_not_quiet_while_it_runs_or_something_has_come(running: Running) -> None:
    running.settle()
    begun, released = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        released.wait(WAIT)

    running.loop.call_soon_threadsafe(block)
    begun.wait(WAIT)
    assert not running.loop.is_quiet()
    released.set()
    running.settle()
    released.clear()
    done = threading.Event()
    running.loop.call_soon_threadsafe(running.loop.run_in_executor, None, released.wait, WAIT)
    running.loop.call_soon_threadsafe(done.set)
    done.wait(WAIT)
    assert not running.loop.is_quiet(), "a thread works for it"
    released.set()
    running.settle()


def test_callers_say_when_their_thread_waits() -> None:
    callers = _Callers()
    collected: list[bool] = []
    thread = threading.Thread(target=lambda: collected.append(callers.collect(None)))
    thread.start()
    wait_until(lambda: callers.waits, WAIT, "it waits")
    assert not is_readable(callers.fileno())
    callers.wake()
    thread.join(WAIT)
    assert collected == [True] and (callers.waits, callers.rounds) == (False, 1)
    assert not callers.collect(0)
    callers.close()


def test_a_mailbox_is_quiet_or_not() -> None:
    executor = SimpleNamespace(name="a", state="new", write=None, end=None)
    mailbox = ClockedMailbox(Clock(), cast(Any, executor), lambda _executor, _error: None)

    def quiet(waiting: bool = False) -> bool:
        return mailbox.is_quiet(lambda _thread: waiting)

    assert not quiet(), "it has not begun"
    mailbox.thread = 1
    assert not quiet() and quiet(waiting=True)
    mailbox._counted.waits = True
    assert quiet()
    mailbox.callers.wake()
    assert not quiet(), "something has come"
    executor.state = "ended"
    assert quiet()
    done = threading.Event()
    mailbox._served_by = threading.Thread(target=done.wait)
    mailbox._served_by.start()
    assert not quiet(), "its thread hands over what is left"
    done.set()
    mailbox._served_by.join(WAIT)
    assert quiet()
    mailbox.callers.close()


def test_what_is_readable() -> None:
    read_end, write_end = os.pipe()
    assert not is_readable(read_end)
    os.write(write_end, b"x")
    assert is_readable(read_end)
    os.close(read_end)
    os.close(write_end)
    assert not is_readable(read_end)

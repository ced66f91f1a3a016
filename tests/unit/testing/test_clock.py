"""The clock of a test, without actors: time limits, and what is refused."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.errors import MeshError, UsageError
from meshrt.testing import clock as clocks
from meshrt.testing.clock import FakeClock, current_clock, fake_clock
from meshrt.transport.clock import Deadline, HoldClock
from meshrt.transport.expiry import Expiry


class Driver:
    """What a clock needs of a driver: nothing comes."""

    def __init__(self) -> None:
        self.clock = HoldClock()
        self.expiry = Expiry(self.clock, lambda _seconds, _function: None)
        self.waits = SimpleNamespace(entries={})
        self.queues = SimpleNamespace(when_read=lambda action: action())
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        return self._read

    def poll_nowait(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Call:
    """A call that notes when it has expired."""

    finished = False

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.at: list[float] = []

    def expire(self, seconds: float) -> None:
        self.finished = True
        self.at.append(self.clock.time())


class Host:
    """The actors of a rank, all of which wait."""

    def __init__(self, *states: str) -> None:
        mailboxes = [SimpleNamespace(executor=SimpleNamespace(state=state)) for state in states]
        self.mailboxes = dict(enumerate(mailboxes))

    def join(self, timeout: float) -> bool:
        return all(mailbox.executor.state == "ended" for mailbox in self.mailboxes.values())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    monkeypatch.setattr(clocks, "start_root", lambda: SimpleNamespace(runtime=SimpleNamespace(driver=made)))
    yield made
    made.close()


def test_calls_expire_at_their_time(driver: Driver) -> None:
    with fake_clock() as clock:
        calls = [Call(clock) for _ in range(3)]
        for call, seconds in zip(calls, (60, 20, 0.5), strict=True):
            driver.expiry.add(call, seconds)
        clock.advance(30)
        assert [call.at for call in calls] == [[], [pytest.approx(20)], [pytest.approx(0.5)]]
        clock.advance(30)
        assert calls[0].at == [pytest.approx(60)]
        assert clock.time() == 60


def test_time_limits_of_this_thread_are_those_of_the_world(driver: Driver) -> None:
    with fake_clock() as clock:
        deadlines = [Deadline(driver.clock.of_thread(), 60)]
        thread = threading.Thread(target=lambda: deadlines.append(Deadline(driver.clock.of_thread(), 60)))
        thread.start()
        thread.join()
        clock.advance(60)
        own, other = (deadline.left() for deadline in deadlines)
        assert own > 0 > other
    assert driver.clock.of_thread() == driver.clock.now and not driver.clock.held


def test_one_block_at_a_time_and_only_forward(driver: Driver) -> None:
    assert current_clock() is None
    with fake_clock() as clock:
        assert current_clock() is clock
        with pytest.raises(UsageError, match="only one clock can be active"), fake_clock():
            pass
        for wrong in (-1.0, float("inf"), float("nan")):
            with pytest.raises(UsageError, match="expected a finite number, 0 or more"):
                clock.advance(wrong)
    assert current_clock() is None and clock.time() >= 0
    with pytest.raises(UsageError, match="the block of this clock has ended"):
        clock.advance(1)


def test_a_grace_passes(driver: Driver) -> None:
    with fake_clock() as clock:
        assert clock._join(cast(Any, Host("ended")), 5) and clock.time() == 0
        assert not clock._join(cast(Any, Host("ready")), 5)
        assert clock.time() == 5


def test_what_is_at_work_is_named(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_PATIENCE", 0.01)
    busy = SimpleNamespace(name="trainer", rounds=0, is_quiet=lambda _: False, clocked=None, has_ended=False)
    with fake_clock() as clock:
        monkeypatch.setattr(clock, "_mailboxes", lambda: [busy])
        with pytest.raises(MeshError, match=r"still busy, .*: trainer$"):
            clock.advance(1)
        assert not clock._join(cast(Any, Host("ready")), 5)
        driver.waits.entries[7] = SimpleNamespace(finished=False), time.monotonic(), None
        assert clock._is_waiting(7) and not clock._is_waiting(8)
        driver.waits.entries[7] = SimpleNamespace(finished=True), time.monotonic(), None
        assert not clock._is_waiting(7)
        monkeypatch.setattr(clock, "_mailboxes", list)

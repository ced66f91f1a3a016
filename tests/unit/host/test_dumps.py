"""The stacks of silent ranks: a stand-in that writes them on request, delays of its threads that the test sets."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.host import dumps as dumps_module
from meshrt.host.dumps import Dumps


class Silent:
    """A rank that writes its stacks whenever it is asked, and says nothing else."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.pidfd = -1
        self.gone = False
        self.written = self.asked_faults = 0

    def fault_size(self) -> int:
        return self.written

    def take_dump(self, start: int) -> str:
        self.asked_faults = self.written
        return f"stacks {self.written // 10}"


class Machine:
    """The clock and the kernel's count of how long threads wait for a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.delays = {1: 0, 2: 0}
        self.child: Any = Silent()
        self.asked = 0
        monkeypatch.setattr(dumps_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(dumps_module, "run_delays", lambda _pid: dict(self.delays))
        monkeypatch.setattr(dumps_module, "is_stopped", lambda _pid: False)
        monkeypatch.setattr(signal, "pidfd_send_signal", lambda _pidfd, _signal: self._signalled())
        self.dumps = Dumps(SimpleNamespace(dump_begun=lambda _child: None))  # type: ignore[arg-type]  # a stand-in

    def _signalled(self) -> None:
        self.asked += 1
        self.child.written += 10

    def looks(self, seconds: float, *, starved: bool, ask: bool = True) -> tuple[str, str] | None:
        """Look every 10 ms for so long, until there is a result."""
        end = self.now + seconds
        while self.now < end:
            if (found := self.dumps.look(self.child, ask=ask)) is not None:
                return found
            self.now += 0.01
            self.delays[2] += 9_000_000 if starved else 100_000
        return None


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_silent_rank_that_has_a_processor_is_busy(machine: Machine) -> None:
    assert machine.looks(0.2, starved=False) == ("busy", "stacks 1")


def test_a_silent_rank_that_lacks_a_processor_is_given_time(machine: Machine) -> None:
    assert machine.looks(2.0, starved=True) is None
    assert machine.asked > 5
    found = machine.looks(0.2, starved=False)
    assert found is not None and found == ("busy", f"stacks {machine.asked}"), "the latest stacks count"


def test_a_rank_lacks_a_processor_while_it_waits_for_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["R", "S"]
    monkeypatch.setattr(dumps_module, "kernel_state", lambda _pid: states.pop(0))
    assert not machine.dumps.lacks_processor(machine.child), "it was not asked yet"
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _pidfd, _signal: None)
    assert machine.looks(0.02, starved=False) is None
    assert machine.dumps.lacks_processor(machine.child), "it can run, and has not written its stacks"
    assert not machine.dumps.lacks_processor(machine.child), "it waits for something else"


def test_a_rank_that_lacks_a_processor_for_long_is_busy_all_the_same(machine: Machine) -> None:
    assert machine.looks(3.5, starved=True) == ("busy", f"stacks {machine.asked}")


def test_the_last_look_takes_the_stacks_that_are_there(machine: Machine) -> None:
    assert machine.looks(1.0, starved=True) is None
    assert machine.dumps.look(machine.child, ask=False) == ("busy", f"stacks {machine.asked}")


def test_a_rank_that_was_not_asked_has_no_stacks(machine: Machine) -> None:
    assert machine.dumps.look(machine.child, ask=False) is None

"""Which ranks are said not to answer: real processes, and a clock that the test moves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.host import pulse as pulse_module
from meshrt.host.pulse import BUSY_SECONDS, STACK_SIGNAL, Pulse
from tests.support.pausing import pause

#: Says so in ``faults`` when it is asked for its stacks.
SLEEPER = """
import os, signal, sys
signal.signal(int(sys.argv[1]), lambda number, frame: os.write(1, b"stacks"))
os.write(1, b"ready")
while True:
    signal.pause()
"""


class Sleeper:
    """What `Pulse` asks of a child: a process that runs, and where its stacks end up."""

    def __init__(self) -> None:
        command = [sys.executable, "-S", "-c", SLEEPER, str(int(STACK_SIGNAL))]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.faults = self.process.stdout
        self.pid = self.process.pid
        self.pidfd = os.pidfd_open(self.pid)
        assert os.read(self.faults.fileno(), 5) == b"ready"

    def fault_size(self) -> int:
        return 0

    def take_dump(self, start: int) -> str:
        return os.read(self.faults.fileno(), 100).decode()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.faults.close()
        os.close(self.pidfd)


class Watched:
    """A pulse over one process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(pulse_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.child: Any = Sleeper()
        self.pings = 0
        self.told: list[tuple[str, str]] = []
        self.pulse = Pulse(self.ping, lambda _child, state, stack: self.told.append((state, stack)))

    def ping(self, _child: Any) -> None:
        self.pings += 1

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.pulse.tick([self.child])

    def stop_process(self) -> None:
        pause(self.child.pid)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    found = Watched(monkeypatch)
    yield found
    found.child.end()


def test_a_stopped_process_is_told_at_the_next_look_and_so_is_its_return(watched: Watched) -> None:
    watched.pass_by(1)
    watched.stop_process()
    watched.pass_by(1)
    watched.pass_by(1)
    assert watched.told == [("stopped", "")] and watched.pings == 1
    watched.pulse.answered(watched.child)
    assert watched.told[1:] == [("answering", "")]


def test_a_busy_process_is_asked_for_its_stacks_before_it_is_told(watched: Watched) -> None:
    watched.pass_by(1)
    for _ in range(int(BUSY_SECONDS) - 1):
        watched.pass_by(1)
    assert watched.told == [] and watched.pulse.dump_begun(watched.child) is None
    watched.pass_by(1)
    assert watched.told == [] and watched.pulse.dump_begun(watched.child) == 0
    watched.pass_by(1)
    assert watched.told == [("busy", "stacks")]


def test_who_was_away_itself_asks_anew(watched: Watched) -> None:
    """The agent was stopped, or the whole machine: that an answer is late says nothing of who was to give it."""
    watched.pass_by(1)
    watched.stop_process()
    watched.pass_by(3600)
    assert watched.told == [] and watched.pings == 2
    watched.pass_by(1)
    assert watched.told == [("stopped", "")]


def test_one_that_answers_in_time_is_never_looked_at(watched: Watched) -> None:
    watched.stop_process()
    for _ in range(10):
        watched.pass_by(1)
        watched.pulse.answered(watched.child)
    assert watched.told == [] and watched.pings == 10

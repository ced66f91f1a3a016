"""Ranks of a machine that is lost: a host is found for them, or they are lost for good."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from meshrt.errors import SpawnError
from meshrt.hooks.fate import Fate
from meshrt.mesh.moving import Moving
from meshrt.transport.liveness import FENCE_SECONDS
from tests.unit.mesh.root_fakes import FakeAgent
from tests.unit.mesh.test_lifecycle import Bench as Lifecycles

MOVABLE = ("m", [0, 1], "actor", 2, ("", 0))


class Bench(Lifecycles):
    def __init__(self) -> None:
        super().__init__()
        self.agent.machine = 7
        self.agent.said = "its machine has not answered"
        self.spare_agent: Any = FakeAgent("spare")
        self.problem: Exception | None = None
        #: What is to be done on the loop, and when.
        self.posted: list[Callable[[], None]] = []
        self.waits: list[float] = []
        me: Any = self
        Moving(me, me, self.lifecycle, me)
        self.start()
        self.restarts.allow(*MOVABLE)

    # -- RootLoop and HostAgents, for the part that is tested

    def post(self, function: Callable[[], None]) -> None:
        self.posted.append(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.waits.append(seconds)
        function()

    def spare(self, _lost: object, used: Sequence[Any], ranks: int) -> Any:
        assert [*used] == [self.agent] and ranks == 2
        if self.problem is not None:
            raise self.problem
        return self.spare_agent

    # -- the test's hands

    def lose(self) -> None:
        self.agent.gone = True
        lost: Any = self.agent
        self.lifecycle.lose(lost)
        for thread in threading.enumerate():
            if thread.name == "meshrt-spare":
                thread.join(10)

    def go_on(self) -> None:
        for function in self.posted:
            function()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.driver.close()


def test_they_are_started_on_a_host_that_is_left(bench: Bench) -> None:
    bench.lose()
    assert bench.mesh.homeless == {0, 1} and bench.mesh.fates == {} and bench.asked == []
    bench.go_on()
    assert bench.asked == [[0], [1]] and bench.spare_agent.frames == [b"births"] * 2
    assert bench.mesh.agents == [bench.spare_agent] and not bench.mesh.homeless
    assert bench.waits == [] and bench.lost_ranks == []
    assert bench.announced[-1] == "restarting 2 ranks of m on host spare"


def test_their_agent_has_the_time_to_end_them(bench: Bench) -> None:
    """Its connection has ended for another reason than silence: it may live."""
    bench.agent.said = ""
    bench.lose()
    assert bench.waits == [FENCE_SECONDS]


def test_without_another_host_they_are_lost_for_good(bench: Bench) -> None:
    bench.problem = SpawnError("the engine has no other host")
    bench.lose()
    bench.go_on()
    assert bench.lost_ranks == [(0, "host"), (1, "host")]
    expected = "its machine has not answered; no other host can replace it: the engine has no other host"
    assert bench.mesh.fates[1] == Fate("host", host="h", hint=expected)


def test_a_mesh_that_is_stopped_does_not_wait_for_a_host(bench: Bench) -> None:
    bench.lose()
    bench.stopping.stop("m", 0.0)
    bench.stopping.check(bench.mesh)
    bench.go_on()
    assert bench.mesh.stopped is not None and bench.mesh.stopped.finished
    assert bench.mesh.fates[0].kind == "stopped" and bench.asked == []


def test_ranks_of_this_machine_are_not_started_elsewhere(bench: Bench) -> None:
    bench.agent.machine = 0
    bench.lose()
    assert bench.lost_ranks == [(0, "host"), (1, "host")]

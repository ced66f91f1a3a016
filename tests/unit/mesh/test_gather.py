"""Answers as agents send them: times of other machines, and agents that send none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from meshrt.hooks.clock import HostClock
from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.inspect.records import ReadStacks
from meshrt.mesh import gather as gather_module
from meshrt.mesh.gather import Gathers
from meshrt.timeline.operations import Part, Row, TakeOnRank
from meshrt.wire.tree import Gathered as AgentGathered
from tests.unit.mesh.root_fakes import FakeLoop


class Agent:
    """Takes the question."""

    full = gone = False
    machine = 0

    def __init__(self, pid: int = 0) -> None:
        self.pid = pid

    def send(self, message: object) -> None: ...


def test_times_of_each_rank_are_converted_by_the_clock_of_its_host() -> None:
    clocks = {0: None, 1: HostClock("n2", 1000, 5)}
    agents: dict[int, Any] = {rank: Agent() for rank in clocks}
    record = SimpleNamespace(shape=range(2), fates={}, agent_of=agents)
    registry: Any = SimpleNamespace(meshes={"m": record}, clocks_of=lambda _mesh: {1: clocks[1]})
    loop = FakeLoop()
    gathers = Gathers(registry, loop.call_later)
    found: list[Gathered[Any, Any]] = []
    number = gathers.begin({"m": [0, 1]}, TakeOnRank("r", 1000, {}), 1.0, found.append)
    part = Part(1, 17, ["a"], [Row(1, 2000, 3000, 11, 0, 0, 0, 0, 0, 0)], [], [], [], 0, False)
    plain = msgspec.to_builtins(part)
    gathers.received(agents[0], AgentGathered(number, [("m", "answered", [0, 1], None, [plain, plain])]))
    loop.pass_time()
    ((group,),) = [each.groups for each in found]
    assert isinstance(group, Answered)
    assert {rank: (got.spans[0].begin, got.spans[0].end) for rank, got in group.per.items()} == {
        0: (2000, 3000),
        1: (3000, 4000),
    }


class Asked:
    """Rank 0 of one agent and rank 1 of another one, a question of a second, and a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(gather_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(gather_module, "is_stopped", lambda pid: pid in self.stopped)
        self.stopped: set[int] = set()
        self.agents: tuple[Any, Any] = Agent(10), Agent(11)
        record = SimpleNamespace(shape=range(2), fates={}, agent_of=dict(enumerate(self.agents)))
        registry: Any = SimpleNamespace(meshes={"m": record}, clocks_of=lambda _mesh: {})
        self.loop = FakeLoop()
        self.gathers = Gathers(registry, self.loop.call_later)
        self.found: list[Gathered[Any, Any]] = []
        self.number = self.gathers.begin({"m": [0, 1]}, ReadStacks(), 1.0, self.found.append)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.loop.pass_time()
        self.loop.pass_time()

    @property
    def silent(self) -> dict[tuple[int, ...], str]:
        groups = [group for each in self.found for group in each.groups]
        return {group.ranks: group.state for group in groups if isinstance(group, Unanswered)}


def test_an_agent_that_is_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asked.pass_time(1.5)
    assert not asked.silent
    asked.gathers.received(asked.agents[0], AgentGathered(asked.number, [("m", "refused", [0], "no", None)]))
    asked.pass_time(3.0)
    assert asked.silent == {(0,): ""} and not asked.found[-1].done
    asked.pass_time(1.5)
    assert asked.silent == {(0,): "", (1,): "host"} and asked.found[-1].done


def test_an_agent_that_says_that_it_waits_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    for _ in range(10):
        asked.gathers.received(asked.agents[1], AgentGathered(asked.number, []))
        asked.pass_time(0.9)
    assert asked.silent == {(0,): "host"} and not asked.found[-1].done


def test_an_agent_that_a_signal_has_stopped_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asked.stopped = {11}
    asked.pass_time(1.5)
    assert asked.silent == {(1,): "host"} and not asked.found[-1].done

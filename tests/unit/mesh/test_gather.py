"""Answers of ranks of several machines: their times are converted where they come in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from meshrt.hooks.clock import HostClock
from meshrt.hooks.facts import Answered, Gathered
from meshrt.mesh.gather import Gathers
from meshrt.timeline.operations import Part, Row, TakeOnRank
from meshrt.wire.tree import Gathered as AgentGathered
from tests.unit.mesh.root_fakes import FakeLoop


class Agent:
    """Takes the question."""

    full = gone = False

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
    gathers.received(AgentGathered(number, [("m", "answered", [0, 1], None, [plain, plain])]))
    loop.pass_time()
    ((group,),) = [each.groups for each in found]
    assert isinstance(group, Answered)
    assert {rank: (got.spans[0].begin, got.spans[0].end) for rank, got in group.per.items()} == {
        0: (2000, 3000),
        1: (3000, 4000),
    }

"""The root's side of plans of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from meshrt.errors import MeshError
from meshrt.faults.operations import Armed, BeginOnRank, Happens, LookOnRank, Planned
from meshrt.faults.root import Faults, load
from meshrt.hooks.facts import Answered, Gathered, Unanswered


class Services:
    """Ranks that answer at once, in two parts."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}
        self.served: list[object] = []
        self.asked: list[tuple[object, object]] = []

    def call_soon(self, function: Callable[[], None]) -> None:
        function()

    def serve_ranks(self, operation: object, handler: object) -> None:
        self.served.append(operation)

    def gather(
        self, targets: object, operation: object, seconds: float, report: Callable[[Gathered[Any, Any]], None]
    ) -> int:
        self.asked.append((targets, operation))
        report(Gathered([Answered("m", (0,), Armed(False), {})], done=False))
        report(Gathered([Unanswered("m", (3,), "gone", "has ended")], done=True))
        return 1


def test_a_plan_goes_to_its_ranks_and_what_they_tell_comes_back() -> None:
    services = Services()
    load(cast(Any, services))
    side: Faults = services.tables["faults"]
    assert services.served == [Happens]
    told: list[tuple[int, int]] = []
    planned = [Planned("kill", [3, 0], "step", 1), Planned("cut", [0], "step", 2)]
    answers = side.begin("p", "m", planned, lambda number, rank: told.append((number, rank)))
    assert [group.ranks for group in answers] == [(0,), (3,)]
    assert services.asked == [({"m": [0, 3]}, BeginOnRank("p", planned))]
    side.happens("m", 3, Happens("p", 1))
    assert told == [(1, 3)]
    assert len(side.ask("m", [0], LookOnRank("p"))) == 2
    side.forget("p")
    with pytest.raises(MeshError, match="this plan has ended"):
        side.happens("m", 3, Happens("p", 0))

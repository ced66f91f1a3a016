"""What a rank tells the root of blocked endpoints, beside its other threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.hooks.operations import Report
from meshrt.hooks.services import RankServices
from meshrt.inspect.operations import Progress
from meshrt.inspect.rank import RankInspector


class Raced(dict[str, EndpointCall]):
    """A table from which another thread removes an entry as soon as one thread has seen it."""

    def get(self, key: str, default: EndpointCall | None = None) -> EndpointCall | None:  # type: ignore[override]
        return self.pop(key, default)


def test_an_endpoint_that_ends_while_a_pulse_looks_at_it_is_told_once() -> None:
    told: list[Report] = []
    inspector = RankInspector(cast(RankServices, SimpleNamespace(report=told.append, actors=list)))
    call = EndpointCall("m", "a", 0, "step", [], 0, 1)
    inspector._halted = Raced(a=call)
    inspector._exited(call)
    assert [each.state for each in told if isinstance(each, Progress)] == ["running"]
    inspector._exited(call)
    assert len(told) == 1


def test_an_actor_that_serves_calls_between_two_looks_is_not_idle() -> None:
    """At each look it waits for messages."""
    told: list[Report] = []
    actor = ActorState("a", None, None, None)
    inspector = RankInspector(cast(RankServices, SimpleNamespace(report=told.append, actors=lambda: [actor])))

    def states() -> list[str]:
        return [each.state for each in told if isinstance(each, Progress)]

    for _ in range(4):
        actor.begun += 5
        inspector.pulse()
    assert "idle" not in states()
    inspector.pulse()
    assert states() == ["idle"]
    actor.begun += 1
    inspector.pulse()
    assert states() == ["idle", "running"]

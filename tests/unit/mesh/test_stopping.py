"""The end of a mesh: who is asked, when it is complete, and what is done without an agent that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from meshrt.errors import SpawnError
from meshrt.hooks.fate import Fate
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.registry import Registry
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.stopping import OverdueAgents, Stopping
from meshrt.transport.driver import Driver
from meshrt.wire.operations import CutOff
from meshrt.wire.tree import Stop
from tests.unit.mesh.root_fakes import FakeAgent, FakeLoop, record
from tests.unit.transport.fake_rank import SECRET, FakeTree


class Bench:
    """One mesh of two ranks on two hosts, and what ends it."""

    def __init__(self) -> None:
        self.driver = Driver(SECRET, FakeTree())
        loop: Any = FakeLoop()
        self.loop = loop
        self.registry = Registry()
        self.announced: list[str] = []
        self.overdue = OverdueAgents(self.announced.append)
        self.stopping = Stopping(self.registry, self.driver, Restarts(), self.loop, self.overdue, self.announced.append)
        self.stopping.on_killed.append(self._gone)
        self.agents = [FakeAgent("h0"), FakeAgent("h1")]
        self.mesh = self.add("m")

    def add(self, name: str) -> MeshRecord:
        made = record(self.driver, *self.agents, name=name)
        self.registry.add(made)
        for rank in range(2):
            self.registry.born(name, rank, 100 + rank)
        return made

    def _gone(self, mesh_id: str, rank: int, fate: Fate) -> None:
        for callback in self.registry.gone(mesh_id, rank, fate):
            callback()

    def end(self, rank: int) -> None:
        """A rank has ended, and its agent has said so."""
        self._gone("m", rank, Fate("stopped"))
        self.mesh.stopped_agents.add(self.mesh.agent_of[rank])
        self.stopping.check(self.mesh)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.driver.close()


def test_it_is_complete_when_every_agent_has_ended_its_part(bench: Bench) -> None:
    stopped = bench.stopping.stop("m", 5.0, "why")
    asked = Stop("m", 5.0, True, "why")
    assert [agent.sent for agent in bench.agents] == [[asked], [asked]]
    assert bench.stopping.stop("m", 5.0) is stopped
    assert [len(agent.sent) for agent in bench.agents] == [1, 1]
    bench.loop.run()
    bench.end(0)
    assert bench.registry.running() == [bench.mesh]
    bench.end(1)
    assert stopped.finished and bench.mesh.over_at and bench.announced == []


def test_a_hurry_takes_the_grace_away(bench: Bench) -> None:
    stopped = bench.stopping.stop("m", 5.0)
    assert bench.stopping.stop("m", 0.0, "an error") is stopped
    assert bench.agents[0].sent[1:] == [Stop("m", 0.0, False, "an error")]
    assert bench.mesh.grace == 0.0


def test_an_agent_that_is_gone_is_neither_asked_nor_waited_for(bench: Bench) -> None:
    bench.agents[1].gone = True
    bench.registry.gone("m", 1, Fate("host"))
    stopped = bench.stopping.stop("m", 0.0)
    assert bench.agents[1].sent == []
    bench.end(0)
    assert stopped.finished


def test_the_ranks_of_an_agent_that_does_not_answer_are_killed(bench: Bench) -> None:
    stopped = bench.stopping.stop("m", 2.0)
    bench.end(0)
    ((seconds, _),) = bench.loop.later
    assert seconds > 2.0
    bench.loop.pass_time()
    assert stopped.finished
    assert bench.agents[1].killed_ranks == [101] and bench.agents[0].killed_ranks == []
    assert bench.mesh.fates[1].kind == "stopped"
    bench.agents[1].answers = False
    bench.overdue.hear()
    assert [agent.host for agent in bench.overdue.unheard] == ["h1"]
    assert bench.announced[0].startswith("the agent of host h1 (pid 4711) does not answer at the end of the program")


def test_an_agent_that_a_signal_has_stopped_is_heard_at_the_end_of_the_program(bench: Bench) -> None:
    bench.agents[0].is_stopped = True
    agents: Any = bench.agents
    bench.overdue.resume(agents)
    assert bench.announced == [
        "the agent of host h0 (pid 4711) was stopped by a signal: it is resumed, as the program ends"
    ]
    bench.overdue.hear()
    assert bench.overdue.unheard == set()


def test_meshes_end_when_the_loop_fails(bench: Bench) -> None:
    starting = record(bench.driver, *bench.agents, name="starting")
    bench.registry.add(starting)
    stopped = bench.stopping.stop("m", 5.0)
    bench.loop.fail("the runtime failed")
    assert stopped.finished and all(agent.killed for agent in bench.agents)
    assert starting.alive() == [] and starting.fates[0].kind == "unborn"
    with pytest.raises(SpawnError, match="the runtime failed"):
        starting.initialized.get(1)
    assert bench.stopping.stop("starting", 5.0).finished


def test_what_has_not_left_the_script_is_known_before_ranks_are_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that is interrupted takes it: when the rank tells what it has cut off, nothing waits here any more."""
    unwritten = {1}
    monkeypatch.setattr(bench.driver.queues, "unwritten", lambda _mesh_id: set(unwritten))
    bench.stopping.stop("m", 0.0)
    unwritten.clear()
    bench.mesh.cut.told(1, CutOff([], 2, more=False))
    assert "at least 2 calls that had not started, sent to rank 1" in bench.mesh.cut.text(0.0, at_exit=False)

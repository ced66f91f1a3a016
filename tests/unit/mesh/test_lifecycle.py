"""Births and ends of ranks: who is told, what is stopped with them, and what is started again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from meshrt.errors import SpawnError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Report, Taken
from meshrt.hooks.services import PendingCall
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.stopping import OverdueAgents, Stopping
from meshrt.transport.driver import Driver
from meshrt.wire.operations import ActorBegun, ActorEnded
from meshrt.wire.tree import Stop
from tests.unit.mesh.root_fakes import FakeAgent, FakeLoop, record
from tests.unit.transport.fake_rank import SECRET, FakeTree

DIED = Fate("died", signal=9)


class Progress:
    """Keeps how many ranks run."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def update(self, done: int) -> None:
        self.counts.append(done)


Q = TypeVar("Q")


class Bench:
    """The services and the supervision of a root, and one mesh of two ranks."""

    def __init__(self) -> None:
        self.driver = Driver(SECRET, FakeTree())
        loop: Any = FakeLoop()
        self.loop = loop
        self.registry = Registry()
        self.restarts = Restarts()
        self.takers: dict[str, Callable[[str, int, Any], None]] = {}
        self.actor_begun: list[Callable[[str, int, str], None]] = []
        self.announced: list[str] = []
        self.lost_ranks: list[tuple[int, str]] = []
        self.stopping = Stopping(
            self.registry, self.driver, self.restarts, self.loop, OverdueAgents(self.announce), self.announce
        )
        me: Any = self
        self.lifecycle = Lifecycle(self.registry, self.driver, me, me, self.restarts, self.stopping, self.loop)
        self.agent = FakeAgent()
        self.progress: Any = Progress()
        self.asked: list[list[int]] = []
        self.mesh = self.add("m")

    def on_report(self, report: Taken[Q], handler: Callable[[str, int, Q], None]) -> None:
        self.takers[report.name()] = handler

    def report(self, rank: int, report: Report) -> None:
        self.takers[report.name()]("m", rank, report)

    def add(self, name: str, owner: Owner | None = None) -> MeshRecord:
        def births(_record: MeshRecord, ranks: list[int]) -> list[bytes]:
            self.asked.append(ranks)
            return [b"births"]

        made = record(self.driver, self.agent, name=name, owner=owner, births=births, progress=self.progress)
        self.registry.add(made)
        return made

    # -- Services and Supervision

    def announce(self, text: str) -> None:
        self.announced.append(text)

    def on_born(self, _mesh_id: str, _rank: int) -> None: ...

    def on_gone(self, _mesh_id: str, _rank: int, _fate: Fate, _owed: object) -> None: ...

    def owed_by(self, _mesh_id: str, _rank: int) -> list[PendingCall]:
        return []

    def lost(self, _record: MeshRecord, rank: int, fate: Fate) -> None:
        self.lost_ranks.append((rank, fate.kind))

    # -- the test's hands

    def start(self, ranks: Sequence[int] = (0, 1)) -> None:
        for rank in ranks:
            self.lifecycle.started("m", rank, 100 + rank)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.driver.close()


def test_a_mesh_has_started_when_every_rank_listens(bench: Bench) -> None:
    bench.start([0])
    with pytest.raises(TimeoutError):
        bench.mesh.initialized.get(0.01)
    bench.start([1])
    assert bench.mesh.initialized.finished and bench.progress.counts == [1, 2]


def test_what_may_be_needed_later_is_loaded_when_a_mesh_has_settled(bench: Bench) -> None:
    """The first death must find it loaded; the start and the end of a program must not wait for it."""
    loaded: list[int] = []
    bench.lifecycle.on_settled.append(lambda: loaded.append(1))
    bench.start([0])
    assert not bench.loop.later
    bench.start([1])
    ((seconds, settled),) = bench.loop.later
    assert 0 < seconds < 0.1 and not loaded
    settled()
    assert loaded == [1]
    bench.stopping.stop("m", 0.0, "")
    settled()
    assert loaded == [1]


def test_a_mesh_with_a_rank_that_could_not_be_started_is_stopped(bench: Bench) -> None:
    bench.start([0])
    bench.lifecycle.gone("m", 1, Fate("unborn", hint="no memory"))
    with pytest.raises(SpawnError, match="rank 1 of m"):
        bench.mesh.initialized.get(1)
    assert [type(message) for message in bench.agent.sent] == [Stop] and bench.progress.counts == [1, 2]


def test_a_rank_that_dies_is_supervised_and_told_once(bench: Bench) -> None:
    bench.start()
    told: list[Fate] = []
    bench.registry.watch("m", 1, told.append)
    bench.lifecycle.gone("m", 1, DIED)
    bench.lifecycle.gone("m", 1, Fate("stopped"))
    assert told[0].when > 0 and told == [DIED] and bench.lost_ranks == [(1, "died")] and len(bench.announced) == 1


def test_a_rank_that_dies_while_it_is_stopped_is_no_failure(bench: Bench) -> None:
    bench.start()
    bench.stopping.stop("m", 0.0)
    bench.lifecycle.gone("m", 1, DIED)
    assert bench.lost_ranks == [] and bench.announced[0].endswith("while it was being stopped")


def test_a_rank_that_is_to_be_restarted_is_asked_for_again(bench: Bench) -> None:
    bench.start()
    bench.restarts.allow("m", [1], "actor", 1, ("", 0))
    bench.report(1, ActorBegun("actor"))
    bench.lifecycle.gone("m", 1, DIED)
    assert bench.asked == [[1]] and bench.agent.frames == [b"births"] and bench.mesh.incarnations == {1: 1}
    bench.start([1])
    bench.lifecycle.gone("m", 1, DIED)  # it has no restart left
    assert bench.asked == [[1]] and bench.lost_ranks == [(1, "died")]


def test_an_actor_that_was_stopped_keeps_its_rank_from_no_restart(bench: Bench) -> None:
    bench.start()
    begun: list[str] = []
    bench.actor_begun.append(lambda _mesh, _rank, name: begun.append(name))
    bench.restarts.allow("m", [1], "actor", 1, ("", 0))
    bench.report(1, ActorBegun("actor"))
    bench.report(1, ActorEnded("actor"))
    bench.lifecycle.gone("m", 1, DIED)
    assert begun == ["actor"] and bench.asked == [] and bench.mesh.actors_of(1) == []


def test_what_a_rank_has_made_ends_with_it(bench: Bench) -> None:
    bench.start()
    owner = Owner("m", 1, "actor")
    bench.add("inner", owner)
    bench.lifecycle.own(owner, "inner")
    assert not bench.registry.is_stopped("inner")
    bench.lifecycle.gone("m", 1, DIED)
    assert bench.registry.is_stopped("inner")
    bench.add("late", owner)  # it was asked for before
    bench.lifecycle.own(owner, "late")
    assert bench.registry.is_stopped("late")


def test_the_ranks_of_a_lost_agent_are_lost_with_their_host(bench: Bench) -> None:
    bench.start()
    bench.agent.gone = True
    agent: Any = bench.agent
    agent.output.tail = ("its agent said this",)
    bench.mesh.last_lines[1] = deque(["its rank printed this"])
    bench.lifecycle.lose(agent)
    assert bench.lost_ranks == [(0, "host"), (1, "host")]
    assert bench.mesh.fates[0].log_tail == ("its agent said this",)
    assert bench.mesh.fates[1].log_tail == ("its rank printed this", "its agent said this")
    assert bench.announced[-1] == "the agent of host h was lost, and with it 2 ranks of m"


def test_a_rank_that_was_never_asked_for_ends_with_its_mesh(bench: Bench) -> None:
    bench.start([0])
    stopped = bench.stopping.stop("m", 0.0)
    bench.lifecycle.gone("m", 0, Fate("stopped"))
    agent: Any = bench.agent
    bench.lifecycle.stopped_on(agent, bench.mesh)
    assert stopped.finished and bench.mesh.fates[1].kind == "stopped"


def test_a_rank_that_is_ended_without_its_agent_is_gone(bench: Bench) -> None:
    bench.start()
    stopped = bench.stopping.stop("m", 0.0)
    bench.loop.pass_time()
    assert stopped.finished and bench.agent.killed_ranks == [100, 101]

"""A long random life of meshes, compared with a model of a few lines."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

import hypothesis.strategies as st
import psutil
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

import meshrt
from meshrt import ActorMesh, MeshStopped, ProcessDied, ProcMesh, SupervisionError, proc_mesh
from tests.support.actors import Clock
from tests.support.waiting import wait_until

MESHES = 3


@dataclass
class Model:
    """What is expected of one actor on one mesh."""

    handle: ActorMesh[Clock]
    mesh: ProcMesh
    pids: list[int]
    counts: list[int]
    dead: set[int] = field(default_factory=set)
    stopped: bool = False

    def expected(self, ranks: list[int]) -> set[type[SupervisionError]]:
        """Return the errors of which a call to these ranks raises one; none if it succeeds."""
        dead = self.dead & set(ranks)
        died: set[type[SupervisionError]] = {ProcessDied} if dead else set()
        return died | {MeshStopped} if self.stopped and dead < set(ranks) else died

    def tick(self, ranks: list[int]) -> list[int]:
        """Count a call, on the ranks that live."""
        for rank in set(ranks) - self.dead:
            self.counts[rank] += 1
        return [self.counts[rank] for rank in ranks]


class Life(RuleBasedStateMachine):
    """Meshes of up to four ranks are made, called, sliced, hurt and stopped."""

    actors = Bundle("actors")

    def __init__(self) -> None:
        super().__init__()
        self.models: list[Model] = []
        #: Ranks are killed that nobody calls: that is to disturb no other call.
        meshrt.unhandled_fault_hook = lambda _failure: None

    @rule(target=actors, hosts=st.integers(1, 2), gpus=st.integers(1, 2), start=st.integers(0, 5))
    def spawn(self, hosts: int, gpus: int, start: int) -> object:
        if len(self.models) == MESHES:
            return multiple()
        mesh = proc_mesh(hosts=hosts, gpus=gpus)
        handle = mesh.spawn("clock", Clock, start).get(30)
        pids = handle.pid.call().get(30).values()
        model = Model(handle, mesh, pids, [start] * len(mesh))
        self.models.append(model)
        return model

    @rule(model=actors, data=st.data())
    def call(self, model: Model, data: st.DataObject) -> None:
        sizes = model.mesh.sizes
        host = data.draw(st.one_of(st.none(), st.integers(0, sizes["hosts"] - 1)), "host")
        gpu = data.draw(st.one_of(st.none(), st.integers(0, sizes["gpus"] - 1)), "gpu")
        chosen = {label: index for label, index in (("hosts", host), ("gpus", gpu)) if index is not None}
        view = model.handle.slice(**chosen)
        ranks = [
            rank
            for rank in range(len(model.counts))
            if all(model.mesh.extent.point(rank)[label] == index for label, index in chosen.items())
        ]
        expected = model.expected(ranks)
        future = view.tick.call()
        error = future.exception(30)
        if not expected:
            assert error is None and future.get().values() == model.tick(ranks)
        else:
            assert type(error) in expected
            if not model.stopped:
                model.tick(ranks)

    @rule(model=actors)
    def broadcast(self, model: Model) -> None:
        model.handle.tick.broadcast()
        if not model.stopped:
            model.tick(list(range(len(model.counts))))

    @rule(model=actors, data=st.data())
    def kill(self, model: Model, data: st.DataObject) -> None:
        alive = sorted(set(range(len(model.pids))) - model.dead)
        if model.stopped or not alive:
            return
        rank = data.draw(st.sampled_from(alive), "rank")
        # What it was sent before is counted: it is served first.
        assert model.handle.select(f"ranks({rank})").read.call().get(30).values() == [model.counts[rank]]
        os.kill(model.pids[rank], signal.SIGKILL)
        model.dead.add(rank)
        wait_until(lambda: not psutil.pid_exists(model.pids[rank]), 10, "the process is gone and reaped")

    @rule(model=actors)
    def stop(self, model: Model) -> None:
        model.mesh.stop().get(30)
        if not model.stopped:
            model.stopped = True
            self.models.remove(model)

    @invariant()
    def the_living_count_right(self) -> None:
        for model in self.models:
            for rank in set(range(len(model.counts))) - model.dead:
                assert model.handle.select(f"ranks({rank})").read.call().get(30).values() == [model.counts[rank]]

    def teardown(self) -> None:
        meshrt.shutdown_context(0.5)
        meshrt.unhandled_fault_hook = None


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=min(settings().max_examples // 5, 15) if settings().max_examples <= 100 else 200,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

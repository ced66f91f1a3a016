"""A long random life of meshes, compared with a model of a few lines."""

from __future__ import annotations

import itertools
import os
import signal
from collections import defaultdict, deque
from dataclasses import dataclass, field

import hypothesis.strategies as st
import psutil
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

import meshrt
from meshrt import (
    ActorError,
    ActorMesh,
    CallTimeout,
    Channel,
    MeshStopped,
    Port,
    PortClosed,
    PortReceiver,
    ProcessDied,
    ProcMesh,
    SupervisionError,
    get_or_spawn,
    proc_mesh,
)
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
    start: int
    #: Restarts that each rank has left.
    restarts: list[int]
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


@dataclass
class Channeled:
    """What is expected of a channel: the numbers that were not received, by sender."""

    port: Port[tuple[int, int, int]]
    receiver: PortReceiver[tuple[int, int, int]]
    sent: dict[tuple[int, int], deque[int]] = field(default_factory=lambda: defaultdict(deque))
    closed: bool = False


class Life(RuleBasedStateMachine):
    """Meshes of up to four ranks are made, called, sliced, hurt, started again and stopped; ranks send to ports."""

    actors = Bundle("actors")
    channels = Bundle("channels")

    def __init__(self) -> None:
        super().__init__()
        self.models: list[Model] = []
        self.single = 100
        self.numbers = itertools.count()
        #: Ranks are killed that nobody calls: that is to disturb no other call.
        meshrt.unhandled_fault_hook = lambda _failure: None

    @rule(
        target=actors,
        hosts=st.integers(1, 2),
        gpus=st.integers(1, 2),
        start=st.integers(0, 5),
        restarts=st.integers(0, 1),
    )
    def spawn(self, hosts: int, gpus: int, start: int, restarts: int) -> object:
        if len(self.models) == MESHES:
            return multiple()
        mesh = proc_mesh(hosts=hosts, gpus=gpus)
        handle = mesh.spawn("clock", Clock, start, max_restarts=restarts).get(30)
        pids = handle.pid.call().get(30).values()
        model = Model(handle, mesh, pids, [start] * len(mesh), start, [restarts] * len(mesh))
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

    @rule(model=actors)
    def cancel(self, model: Model) -> None:
        """A call that is cancelled has run, or never does."""
        if model.stopped or model.dead:
            return
        call = model.handle.tick.call()
        cancelled = call.cancel()
        counts = model.handle.read.call().get(30).values()
        before, after = model.counts, [count + 1 for count in model.counts]
        assert all(count in both for count, *both in zip(counts, before, after, strict=True))
        assert cancelled or counts == after
        model.counts = counts

    @rule(kill=st.booleans())
    def use_singleton(self, kill: bool) -> None:
        """There is one of the name; after its death the next one begins anew."""
        single = get_or_spawn("single", Clock, 100).get(30)
        self.single += 1
        assert single.tick.call_one().get(30) == self.single
        if kill:
            pid = single.pid.call_one().get(30)
            os.kill(pid, signal.SIGKILL)
            assert type(single.read.call_one().exception(30)) is ProcessDied
            self.single = 100

    @rule(model=actors, data=st.data())
    def kill(self, model: Model, data: st.DataObject) -> None:
        alive = sorted(set(range(len(model.pids))) - model.dead)
        if model.stopped or not alive:
            return
        rank = data.draw(st.sampled_from(alive), "rank")
        # What it was sent before is counted: it is served first.
        assert model.handle.select(f"ranks({rank})").read.call().get(30).values() == [model.counts[rank]]
        pid = model.pids[rank]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(pid), 10, "the process is gone and reaped")
        if model.restarts[rank]:
            model.restarts[rank] -= 1
            model.counts[rank] = model.start
            one = model.handle.select(f"ranks({rank})")
            # A call that was on its way to the old process fails.
            wait_until(lambda: one.pid.call().exception(30) is None, 30, "the rank is there again")
            (model.pids[rank],) = one.pid.call().get(30).values()
            assert model.pids[rank] != pid
        else:
            model.dead.add(rank)

    @rule(target=channels)
    def open(self) -> Channeled:
        return Channeled(*Channel[tuple[int, int, int]].open())

    @rule(channel=channels, model=actors, count=st.integers(1, 40))
    def send(self, channel: Channeled, model: Model, count: int) -> None:
        """Each rank sends, also if another one has died; to a closed receiver a few messages go without an error."""
        if any(len(numbers) > 100 for numbers in channel.sent.values()):
            return  # it would wait for the receiver
        numbers = list(itertools.islice(self.numbers, count))
        error = model.handle.send.call(channel.port, id(model), numbers).exception(30)
        expected = model.expected(list(range(len(model.counts))))
        if channel.closed:
            told = type(error) is ActorError and error.remote.type == "meshrt.errors.PortClosed"
            assert error is None or told or type(error) in expected
        else:
            assert type(error) in expected if expected else error is None
        if not channel.closed and not model.stopped:
            for rank in set(range(len(model.counts))) - model.dead:
                channel.sent[id(model), rank].extend(numbers)

    @rule(channel=channels, most=st.integers(1, 100))
    def receive(self, channel: Channeled, most: int) -> None:
        if channel.closed:
            assert type(channel.receiver.recv().exception(30)) is PortClosed
            return
        for _ in range(min(most, sum(map(len, channel.sent.values())))):
            sender, rank, number = channel.receiver.recv().get(30)
            assert channel.sent[sender, rank].popleft() == number
        if not any(channel.sent.values()):
            assert type(channel.receiver.recv().exception(0)) is CallTimeout

    @rule(channel=channels)
    def close(self, channel: Channeled) -> None:
        channel.receiver.close()
        channel.closed = True

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


TestLife = pytest.mark.slow(Life.TestCase)
TestLife.settings = settings(
    max_examples=min(settings().max_examples // 5, 15) if settings().max_examples <= 100 else 200,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

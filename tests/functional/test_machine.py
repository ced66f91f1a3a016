"""A long random life of meshes, compared with a model of a few lines."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
from collections import defaultdict, deque
from dataclasses import dataclass, field

import hypothesis.strategies as st
import psutil
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

import meshrt
from meshrt import (
    ActorAborted,
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
    context,
    endpoint,
    get_or_spawn,
    proc_mesh,
)
from tests.support.actors import Clock
from tests.support.waiting import wait_until

MESHES = 3
#: What a sender may be told of a receiver that is closed, or whose rank or actor has ended.
CLOSED = {f"meshrt.errors.{kind.__name__}" for kind in (PortClosed, ProcessDied, MeshStopped, ActorAborted)}


class Living(Clock):
    """Also asks for the singleton, opens channels on its rank, and ends itself."""

    @endpoint
    def tick_single(self) -> int:
        return get_or_spawn("single", Living, 100).get(30).tick.call_one().get(30)

    @endpoint
    def open(self) -> Port[tuple[int, int, int]]:
        port, self.receiver = Channel[tuple[int, int, int]].open()
        return port

    @endpoint
    def receive(self) -> tuple[int, int, int]:
        return self.receiver.recv().get(30)

    @endpoint
    def close(self) -> None:
        self.receiver.close()

    @endpoint
    def abort(self) -> None:
        context().actor_instance.abort("it is time")


@dataclass
class Model:
    """What is expected of one actor on one mesh."""

    handle: ActorMesh[Living]
    mesh: ProcMesh
    pids: list[int]
    counts: list[int]
    start: int
    #: Restarts that each rank has left.
    restarts: list[int]
    dead: set[int] = field(default_factory=set)
    #: What ends calls since the actor was stopped, or has ended itself.
    ended: set[type[SupervisionError]] = field(default_factory=set)

    def expected(self, ranks: list[int]) -> set[type[SupervisionError]]:
        """Return the errors of which a call to these ranks raises one; none if it succeeds."""
        dead = self.dead & set(ranks)
        died: set[type[SupervisionError]] = {ProcessDied} if dead else set()
        return died | self.ended if dead < set(ranks) else died

    def tick(self, ranks: list[int]) -> list[int]:
        """Count a call, on the ranks that live."""
        for rank in set(ranks) - self.dead:
            self.counts[rank] += 1
        return [self.counts[rank] for rank in ranks]


@dataclass
class Channeled:
    """What is expected of a channel: the numbers that were not received, by sender."""

    port: Port[tuple[int, int, int]]
    #: In the script; or the actor, and its rank, that has the receiver.
    receiver: PortReceiver[tuple[int, int, int]] | None = None
    opener: tuple[Model, int] | None = None
    sent: dict[tuple[int, int], deque[int]] = field(default_factory=lambda: defaultdict(deque))
    closed: bool = False

    @property
    def rank(self) -> ActorMesh[Living]:
        """The rank that has the receiver."""
        assert self.opener is not None
        model, rank = self.opener
        return model.handle.select(f"ranks({rank})")

    def take(self) -> tuple[int, int, int]:
        if self.receiver is not None:
            return self.receiver.recv().get(30)
        (message,) = self.rank.receive.call().get(30).values()
        return message


class Life(RuleBasedStateMachine):
    """Meshes of up to four ranks are made, called, sliced, hurt, started again and stopped; ranks send to ports.

    Each life begins with a mesh whose ranks are started again, a singleton, and channels in the script and on a rank,
    to which both have sent. It ends as all that was sent is received.
    """

    actors = Bundle("actors")
    channels = Bundle("channels")

    def __init__(self) -> None:
        super().__init__()
        self.models: list[Model] = []
        self.channeled: list[Channeled] = []
        self.single = 100
        #: Who the singleton is, as a sender: the next process is another one, whose messages may overtake.
        self.sender = 0
        self.numbers = itertools.count()
        #: Ranks are killed that nobody calls: that is to disturb no other call.
        meshrt.unhandled_fault_hook = lambda _failure: None

    @functools.cached_property
    def first(self) -> Model:
        """The actor that each life has."""
        model = self.spawn(1, 2, 0, 1)
        assert isinstance(model, Model)
        return model

    @initialize(target=actors)
    def begin_with_an_actor(self) -> object:
        return self.first

    @initialize(target=channels)
    def begin_with_channels(self) -> object:
        self.use_singleton("keep")
        found = [self.open(), self.open_on_rank(self.first, 1)]
        for channel in found:
            assert isinstance(channel, Channeled)
            self.send(channel, self.first, 3)
            self.singleton_sends(channel, 2)
        return multiple(*found)

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
        handle = mesh.spawn("clock", Living, start, max_restarts=restarts).get(30)
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
            if not model.ended:
                model.tick(ranks)

    @rule(model=actors)
    def broadcast(self, model: Model) -> None:
        model.handle.tick.broadcast()
        if not model.ended:
            model.tick(list(range(len(model.counts))))

    @rule(model=actors)
    def cancel(self, model: Model) -> None:
        """A call that is cancelled has run, or never does."""
        if model.ended or model.dead:
            return
        call = model.handle.tick.call()
        cancelled = call.cancel()
        counts = model.handle.read.call().get(30).values()
        before, after = model.counts, [count + 1 for count in model.counts]
        assert all(count in both for count, *both in zip(counts, before, after, strict=True))
        assert cancelled or counts == after
        model.counts = counts

    @rule(then=st.sampled_from(["keep", "kill", "stop"]))
    def use_singleton(self, then: str) -> None:
        """There is one of the name; after its end the next one begins anew."""
        single = get_or_spawn("single", Living, 100).get(30)
        self.single += 1
        assert single.tick.call_one().get(30) == self.single
        if then == "kill":
            os.kill(single.pid.call_one().get(30), signal.SIGKILL)
        elif then == "stop":
            single.stop().get(30)
        if then != "keep":
            assert type(single.read.call_one().exception(30)) is (ProcessDied if then == "kill" else MeshStopped)
            self.single = 100
            self.sender -= 1

    @rule(model=actors)
    def use_singleton_on_ranks(self, model: Model) -> None:
        """All ranks at once; those that live get the numbers that follow."""
        alive = sorted(set(range(len(model.counts))) - model.dead)
        if model.ended or not alive:
            return
        calls = [model.handle.select(f"ranks({rank})").tick_single.call() for rank in alive]
        found = sorted(value for call in calls for value in call.get(30).values())
        assert found == [self.single + number for number in range(1, len(alive) + 1)]
        self.single += len(alive)

    @rule(channel=channels, count=st.integers(1, 20))
    def singleton_sends(self, channel: Channeled, count: int) -> None:
        numbers = list(itertools.islice(self.numbers, count))
        if len(channel.sent[self.sender, 0]) > 100:
            return
        single = get_or_spawn("single", Living, 100).get(30)
        error = single.send.call_one(channel.port, self.sender, numbers).exception(30)
        self.check_sent(channel, error, set())
        if not channel.closed:
            channel.sent[self.sender, 0].extend(numbers)

    def check_sent(
        self, channel: Channeled, error: BaseException | None, expected: set[type[SupervisionError]]
    ) -> None:
        """To a closed receiver a few messages go without an error."""
        if channel.closed:
            told = type(error) is ActorError and error.remote.type in CLOSED
            assert error is None or told or type(error) in expected
        else:
            assert type(error) in expected if expected else error is None

    @rule(model=actors, data=st.data())
    def kill(self, model: Model, data: st.DataObject) -> None:
        alive = sorted(set(range(len(model.pids))) - model.dead)
        if model.ended or not alive:
            return
        rank = data.draw(st.sampled_from(alive), "rank")
        # What it was sent before is counted: it is served first.
        assert model.handle.select(f"ranks({rank})").read.call().get(30).values() == [model.counts[rank]]
        pid = model.pids[rank]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(pid), 10, "the process is gone and reaped")
        self.closed_on(model, {rank})
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
        channel = Channeled(*Channel[tuple[int, int, int]].open())
        self.channeled.append(channel)
        return channel

    @rule(target=channels, model=actors, rank=st.integers(0, 3))
    def open_on_rank(self, model: Model, rank: int) -> object:
        rank %= len(model.counts)
        if model.ended or rank in model.dead:
            return multiple()
        self.closed_on(model, {rank})  # it has one receiver
        (port,) = model.handle.select(f"ranks({rank})").open.call().get(30).values()
        channel = Channeled(port, opener=(model, rank))
        self.channeled.append(channel)
        return channel

    def closed_on(self, model: Model, ranks: set[int]) -> None:
        """The receivers of these ranks are closed: with them, or by another one."""
        for channel in self.channeled:
            if channel.opener is not None and channel.opener[0] is model and channel.opener[1] in ranks:
                channel.closed = True

    @rule(channel=channels, model=actors, count=st.integers(1, 40))
    def send(self, channel: Channeled, model: Model, count: int) -> None:
        """Each rank sends, also if another one has died."""
        if any(len(numbers) > 100 for numbers in channel.sent.values()):
            return  # it would wait for the receiver
        numbers = list(itertools.islice(self.numbers, count))
        error = model.handle.send.call(channel.port, id(model), numbers).exception(30)
        self.check_sent(channel, error, model.expected(list(range(len(model.counts)))))
        if not channel.closed and not model.ended:
            for rank in set(range(len(model.counts))) - model.dead:
                channel.sent[id(model), rank].extend(numbers)

    @rule(channel=channels, most=st.integers(1, 100))
    def receive(self, channel: Channeled, most: int) -> None:
        if channel.closed:
            if channel.receiver is not None:
                assert type(channel.receiver.recv().exception(30)) is PortClosed
            return
        for _ in range(min(most, sum(map(len, channel.sent.values())))):
            sender, rank, number = channel.take()
            assert channel.sent[sender, rank].popleft() == number
        if channel.receiver is not None and not any(channel.sent.values()):
            assert type(channel.receiver.recv().exception(0)) is CallTimeout

    @rule(channel=channels)
    def close(self, channel: Channeled) -> None:
        if channel.receiver is not None:
            channel.receiver.close()
        elif not channel.closed:
            channel.rank.close.call().get(30)
        channel.closed = True

    @rule(model=actors, how=st.sampled_from(["mesh", "actor", "abort"]))
    def stop(self, model: Model, how: str) -> None:
        alive = set(range(len(model.counts))) - model.dead
        if how == "mesh":
            model.mesh.stop().get(30)
            model.ended.add(MeshStopped)
        elif model.ended:
            return
        elif how == "actor":
            with contextlib.suppress(*[ProcessDied][: len(model.dead)]):
                model.handle.stop()
            model.ended.add(MeshStopped)
        else:
            for rank in alive:
                assert type(model.handle.select(f"ranks({rank})").abort.call().exception(30)) is ActorAborted
            model.ended.add(ActorAborted)
        self.closed_on(model, alive)
        if model in self.models:
            self.models.remove(model)

    @invariant()
    def the_living_count_right(self) -> None:
        for model in self.models:
            for rank in set(range(len(model.counts))) - model.dead:
                assert model.handle.select(f"ranks({rank})").read.call().get(30).values() == [model.counts[rank]]

    def teardown(self) -> None:
        try:
            for channel in self.channeled:
                if not channel.closed:
                    self.receive(channel, 1_000)
        finally:
            meshrt.shutdown_context(0.5)
            meshrt.unhandled_fault_hook = None


TestLife = pytest.mark.slow(Life.TestCase)
TestLife.settings = settings(
    max_examples=min(settings().max_examples // 5, 15) if settings().max_examples <= 100 else 200,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

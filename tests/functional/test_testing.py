"""`meshrt.testing`: actors in the process of the test, and classes in place of others."""

from __future__ import annotations

import asyncio
import operator
import os
import queue
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import meshrt
from meshrt import (
    Actor,
    ActorAborted,
    ActorError,
    ActorMesh,
    Channel,
    MeshFailure,
    MeshStopped,
    Port,
    context,
    current_rank,
    endpoint,
    get_or_spawn,
    proc_mesh,
    testing,
    this_proc,
)
from meshrt.errors import MeshError, UsageError
from meshrt.mesh.own_ranks import OwnRanks
from meshrt.mesh.program import start_root
from tests.support.actors import Echo, Failing, Journal
from tests.support.waiting import holds_within

WAIT = 20


class Counter(Actor):
    def __init__(self, start: int = 0) -> None:
        self.count = start
        self.pid = os.getpid()

    @endpoint
    def add(self, number: int) -> int:
        self.count += number
        return self.count

    @endpoint
    async def later(self, number: int) -> int:
        await asyncio.sleep(0)
        return number + self.count

    @endpoint
    def where(self) -> tuple[int, dict[str, int]]:
        return self.pid, dict(current_rank())

    @endpoint
    def append(self, values: list[int]) -> list[int]:
        values.append(self.count)
        return values


class Double(Counter):
    @endpoint
    def add(self, number: int) -> int:
        return super().add(2 * number)


class Spawner(Actor):
    @endpoint
    def add(self) -> int:
        return int(proc_mesh(n=1).spawn("inner", Counter).add.call_one(1).get())


def test_an_actor_runs_in_this_process() -> None:
    with testing.local(Counter, 5) as counter:
        assert counter.sizes == {}
        assert [counter.add.call_one(number).get(WAIT) for number in (1, 2)] == [6, 8]
        assert counter.later.call_one(1).get(WAIT) == 9
        assert counter.where.call_one().get(WAIT) == (os.getpid(), {})
        values = [1]
        assert counter.append.call_one(values).get(WAIT) == [1, 8]
        assert values == [1]  # arguments are copies
    with pytest.raises(MeshStopped):
        counter.add.call_one(1).get(WAIT)


def test_ranks_are_threads_with_points_of_their_own() -> None:
    before = threading.active_count()
    with testing.local_mesh(dp=2, tp=2) as mesh:
        counters = mesh.spawn("counter", Counter)
        points = counters.where.call().get(WAIT)
        assert [point for _, point in points.values()] == [{"dp": dp, "tp": tp} for dp in (0, 1) for tp in (0, 1)]
        assert counters.slice(dp=1).add.map([10, 20]).get(WAIT).values() == [10, 20]
        assert counters.add.call(0).get(WAIT).values() == [0, 0, 10, 20]
        assert counters.add.reduce(operator.add, 0).get(WAIT) == 30
        echo = mesh.spawn("echo", Echo)
        assert echo.slice(dp=0, tp=0).echo.call_one(np.arange(100_000)).get(WAIT)[-1] == 99_999
        assert echo.slice(dp=0, tp=1).apply.call_one(_add, counters.slice(dp=1, tp=0)).get(WAIT) == 11
    assert threading.active_count() <= before + 3  # those of the program itself


def _add(counter: ActorMesh[Counter]) -> int:
    return int(counter.add.call_one(1).get())


def test_messages_are_served_in_order_and_one_at_a_time() -> None:
    with testing.local(Journal) as journal:
        for number in range(200):
            journal.note.broadcast(number)
        entries, most_inside = journal.read.call_one().get(WAIT)
        assert (entries, most_inside) == (list(range(200)), 1)


def test_errors_are_those_of_processes() -> None:
    with testing.local_mesh(n=3) as mesh:
        failing = mesh.spawn("failing", Failing)
        with pytest.raises(ActorError, match=r"failing.fail\(\) raised on rank 1 \(n=1\)") as caught:
            failing.fail.call((1,)).get(WAIT)
        assert isinstance(caught.value, LookupError)
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            failing.fail.call(wrong=1)  # type: ignore[call-arg]
    with pytest.raises(ActorError, match="rank 0 does not start"), testing.local(Failing, (0,)):
        pass


def test_an_error_that_no_caller_waits_for_is_one_of_its_block() -> None:
    with testing.local(Failing) as failing, pytest.raises(LookupError):
        failing.fail.call().get(WAIT)
    with pytest.raises(MeshError, match=r"no caller received the errors:\n(.*\n)*.*where +failing\.fail\(\)"):  # noqa: SIM117
        with testing.local(Failing) as failing:
            failing.fail.broadcast()
    assert not start_root().services.unseen, "it is reported once"
    with testing.local(Failing):
        pass


def test_setup_runs_once_for_each_rank() -> None:
    seen: list[int] = []
    _setups[:] = [seen]
    with testing.local_mesh(n=3, setup=_set_up) as mesh:
        mesh.spawn("a", Echo).get(WAIT)
        mesh.spawn("b", Echo).get(WAIT)
    assert len(seen) == 3


_setups: list[list[int]] = []


def _set_up() -> None:
    _setups[0].append(1)


def test_a_call_that_does_not_end_is_named() -> None:
    released, mesh = threading.Event(), testing.local_mesh(grace=0.1)
    _events[:] = [released]
    try:
        with pytest.raises(MeshError, match=r"have not ended within 0.1 s, on threads: echo"), mesh as ranks:
            ranks.spawn("echo", Echo).apply.broadcast(_wait)
    finally:
        released.set()


_events: list[threading.Event] = []


def _wait() -> None:
    _events[0].wait(WAIT)


def test_code_may_stop_its_mesh() -> None:
    with testing.local_mesh(n=2) as mesh:
        counters = mesh.get().spawn("counter", Counter)
        assert counters.add.call(1).get(WAIT).values() == [1, 1]
        with pytest.raises(UsageError, match="local can only be stopped as a whole; this is a slice"):
            mesh.slice(n=0).stop()
        mesh.stop()
        with pytest.raises(MeshStopped):
            counters.add.call(1).get(WAIT)
        mesh.stop()

    async def awaited() -> None:
        with testing.local_mesh() as mesh:
            async with mesh:
                echo = mesh.spawn("echo", Echo)
                assert await echo.echo.call_one(1) == 1
            with pytest.raises(MeshStopped):
                await echo.echo.call_one(1)

    asyncio.run(awaited())


def test_what_does_not_end_is_named_by_stop() -> None:
    _events[:] = [threading.Event()]
    with testing.local_mesh() as mesh:
        mesh.spawn("echo", Echo).apply.broadcast(_wait)
        try:
            with pytest.raises(MeshError, match=r"calls have not ended within 0\.1 s, on threads: echo"):
                mesh.stop(grace=0.1)
        finally:
            _events[0].set()


class Forks(Actor):
    @endpoint
    def fork(self) -> str:
        pid = os.fork()
        if not pid:
            return "the child"
        return f"the parent of one that has ended with {os.waitpid(pid, 0)[1]}"

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class ForksOnLoop(Forks):
    @endpoint
    async def wait(self) -> None:
        """It has an event loop."""


@pytest.mark.parametrize("cls", [Forks, ForksOnLoop])
def test_a_forked_child_that_comes_back_serves_nobody(cls: type[Forks]) -> None:
    with testing.local(cls) as first, testing.local(cls) as second:
        for actor in (first, second, this_proc().spawn(cls.__name__, cls).get(WAIT)):
            assert actor.fork.call_one().get(WAIT) == "the parent of one that has ended with 0"
            assert actor.pid.call_one().get(WAIT) == os.getpid()


def test_a_size_is_checked() -> None:
    with pytest.raises(UsageError, match="dp=0"), testing.local_mesh(dp=0):
        pass


def test_a_mesh_may_have_a_name() -> None:
    with testing.local_mesh(name="train", dp=2) as mesh:
        assert repr(mesh) == "<ProcMesh train on {dp=2}>"
        with pytest.raises(UsageError, match="train can only be stopped as a whole"):
            mesh.slice(dp=0).stop()


def test_it_has_no_processes_that_have_faults() -> None:
    with (
        testing.local_mesh(n=2) as mesh,
        pytest.raises(UsageError, match="for processes of this program: local has none"),
        testing.faults(mesh, testing.kill(0, at=testing.call("step"))),
    ):
        pass


def test_it_has_no_processes_whose_output_is_shown() -> None:
    with (
        testing.local_mesh() as mesh,
        pytest.raises(UsageError, match="local has no processes that this script has started"),
    ):
        meshrt.logs("off", mesh=mesh)


def test_a_block_may_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is nothing to wait for behind it."""
    settled: list[OwnRanks] = []
    monkeypatch.setattr(OwnRanks, "settle", settled.append)
    with testing.local(Failing):
        meshrt.shutdown_context()
    assert not settled


def test_actors_here_open_channels_and_blocks_leave_nothing() -> None:
    with testing.local(Opener) as opener:
        port = opener.open.call_one().get(WAIT)
        port.send(5)
        assert opener.take.call_one().get(WAIT) == 5
    root = start_root()
    kept = len(root.upkeep._others), len(root.ending._last), len(root.runtime.driver.outstanding())
    for _ in range(5):
        with testing.local_mesh(n=2) as mesh:
            mesh.spawn("echo", Echo).echo.call(1).get(WAIT)
    assert (len(root.upkeep._others), len(root.ending._last), len(root.runtime.driver.outstanding())) == kept


class Opener(Actor):
    @endpoint
    def open(self) -> Port[int]:
        port, self.receiver = Channel[int].open()
        return port

    @endpoint
    def take(self) -> int:
        return self.receiver.recv().get(WAIT)


# -- classes in place of others


def test_a_class_that_is_built_behind_the_block_ends_no_patch_and_begins_none() -> None:
    with testing.local_mesh() as mesh:
        with testing.patch_actor(Counter, Double):
            inside = mesh.spawn("inside", Counter)
        assert inside.add.call_one(1).get(WAIT) == 2
        assert mesh.spawn("outside", Counter).add.call_one(1).get(WAIT) == 1


@pytest.fixture
def doubled() -> Iterator[None]:
    with testing.patch_actor(Counter, Double):
        yield


@pytest.mark.usefixtures("doubled")
def test_another_class_is_spawned() -> None:
    mesh = proc_mesh(n=1)
    assert mesh.spawn("counter", Counter).add.call_one(1).get(WAIT) == 2
    assert get_or_spawn("one", Counter).get(WAIT).add.call_one(2).get(WAIT) == 4
    with testing.patch_actor(Counter, Counter):
        assert mesh.spawn("inner", Counter).add.call_one(1).get(WAIT) == 1
    # Also where a rank spawns it, until the patch ends.
    spawner = mesh.spawn("spawner", Spawner)
    assert spawner.add.call_one().get(WAIT) == 2


def test_a_patch_ends_with_its_block() -> None:
    @testing.patch_actor(Counter, Double)
    def decorated() -> int:
        return int(mesh.spawn("counter", Counter).add.call_one(1).get(WAIT))

    mesh = proc_mesh(n=1)
    assert decorated() == 2
    assert mesh.spawn("after", Counter).add.call_one(1).get(WAIT) == 1
    assert mesh.spawn("spawner", Spawner).add.call_one().get(WAIT) == 1
    with pytest.raises(UsageError, match="patch_actor: 'int' is not a subclass"), testing.patch_actor(Counter, int):
        pass


def test_a_patch_is_for_coroutines_too() -> None:
    mesh = proc_mesh(n=1)

    async def add(name: str) -> int:
        return await mesh.spawn(name, Counter).add.call_one(1)

    @testing.patch_actor(Counter, Double)
    async def decorated(name: str, gate: asyncio.Event, entered: asyncio.Event) -> int:
        entered.set()
        await gate.wait()
        return await add(name)

    async def main() -> list[int]:
        gates, entered = [asyncio.Event(), asyncio.Event()], [asyncio.Event(), asyncio.Event()]
        tasks = [asyncio.create_task(decorated(f"d{i}", gates[i], entered[i])) for i in (0, 1)]
        found = []
        for each in entered:
            await each.wait()
        for gate, task in zip(gates, tasks, strict=True):  # the one that has begun first ends first
            gate.set()
            found.append(await task)
        async with testing.patch_actor(Counter, Double) as given:
            found.append(await add("block"))
            with testing.patch_actor(Counter, Counter) as inner:
                found.append(await add("nested"))
        assert (given, inner) == (Double, Counter)
        return [*found, await add("after")]

    assert asyncio.run(main()) == [2, 2, 2, 1, 1]
    with testing.patch_actor(Counter, Double) as given:
        assert given is Double

    def generator() -> Iterator[None]:
        yield

    with pytest.raises(UsageError, match=r"cannot decorate .*generator, .*expected `with patch_actor"):
        testing.patch_actor(Counter, Double)(generator)


# -- failures


class Ending(Actor):
    def __init__(self, fails: bool = False) -> None:
        if fails:
            raise LookupError(f"rank {current_rank().rank} cannot begin")

    @endpoint
    def abort(self) -> None:
        context().actor_instance.abort("why")


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[MeshFailure]:
    told: queue.SimpleQueue[MeshFailure] = queue.SimpleQueue()
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", told.put)
    return told


def test_the_hook_is_told_of_a_failed_init(failures: queue.SimpleQueue[MeshFailure]) -> None:
    with testing.local_mesh(n=2) as mesh:
        mesh.spawn("ending", Ending, True)
        ranks = failures.get(timeout=WAIT).ranks
        if len(ranks) < 2:
            ranks += failures.get(timeout=WAIT).ranks
        assert sorted(ranks) == [0, 1]


def test_the_hook_is_told_of_an_actor_that_aborts_unless_a_call_was(failures: queue.SimpleQueue[MeshFailure]) -> None:
    with testing.local_mesh() as first, testing.local_mesh(n=2) as second:
        with pytest.raises(ActorAborted):
            first.spawn("known", Ending).abort.call_one().get(WAIT)
        second.slice(n=1).spawn("unknown", Ending).abort.broadcast()
        assert "unknown rank 1 has aborted: why" in failures.get(timeout=WAIT).report()
        assert failures.empty()


def test_without_a_hook_a_wait_raises_what_has_aborted() -> None:
    with testing.local_mesh() as mesh, testing.local(Counter) as counter:
        mesh.spawn("ending", Ending).abort.broadcast()
        with pytest.raises(ActorAborted, match="why"):
            holds_within(WAIT, lambda: counter.add.call_one(1).get(WAIT) < 0)
        assert counter.add.call_one(1).get(WAIT) > 0

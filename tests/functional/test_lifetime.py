"""Context managers and ``stop``: when a mesh ends, and that its processes are gone then."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from meshrt import Actor, MeshStopped, ShutdownError, UsageError, endpoint, proc_mesh, shutdown_context, this_host
from meshrt.mesh.program import start_root
from tests.support.actors import AsyncEcho, Clock, Echo, Gate
from tests.support.waiting import wait_until


def none_alive(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


def test_with_stops_the_mesh() -> None:
    with proc_mesh(n=2) as mesh:
        pids = mesh.spawn("echo", Echo).pid.call().get().values()
        assert all(map(psutil.pid_exists, pids))
    assert none_alive(pids)


def test_async_with_stops_the_mesh() -> None:
    async def main() -> list[int]:
        async with proc_mesh(n=2) as mesh:
            echo = await mesh.spawn("echo", Echo)
            pids = (await echo.pid.call()).values()
            assert all(map(psutil.pid_exists, pids))
        return pids

    assert none_alive(asyncio.run(main()))


def test_with_serves_what_was_sent_before(tmp_path: Path) -> None:
    with proc_mesh(n=2) as mesh:
        echo = mesh.spawn("echo", Echo)
        for index in range(20):
            echo.apply.broadcast(touch_for_rank, str(tmp_path), index)
    assert len(list(tmp_path.iterdir())) == 40


def touch_for_rank(folder: str, index: int) -> None:
    from meshrt import current_rank  # a function that runs in the rank

    (Path(folder) / f"{current_rank().rank}-{index}").touch()


def test_an_exception_leaves_with_without_waiting_for_busy_ranks(tmp_path: Path) -> None:
    """The gate never opens: only giving up what was sent lets the block end."""
    with pytest.raises(KeyError, match="mine"), proc_mesh(n=2) as mesh:  # noqa: PT012 - the block is the subject
        gate = mesh.spawn("gate", Gate).get(20)
        pids = mesh.spawn("echo", Echo).pid.call().get(20).values()
        gate.wait_for.broadcast(str(tmp_path / "never"))
        raise KeyError("mine")
    assert none_alive(pids)


def test_stop_ends_processes_and_later_calls_say_so() -> None:
    mesh = proc_mesh(n=2)
    echo = mesh.spawn("echo", Echo)
    pids = echo.pid.call().get().values()
    assert mesh.stop().get() is None
    assert none_alive(pids)
    with pytest.raises(MeshStopped) as caught:
        echo.rank.call().get(20)
    assert caught.value.may_have_run is False
    assert "was stopped" in str(caught.value) and "echo.rank()" in str(caught.value)
    with pytest.raises(MeshStopped):
        mesh.spawn("late", Echo).get(20)


@pytest.mark.row("X4")
def test_stop_twice_and_from_several_threads() -> None:
    mesh = proc_mesh(n=2)
    mesh.spawn("echo", Echo).get(20)
    barrier = threading.Barrier(4)

    def stop() -> None:
        barrier.wait(20)
        assert mesh.stop().get(20) is None

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(stop) for _ in range(4)]:
            done.result(30)
    assert mesh.stop().get(20) is None


def test_a_pending_call_fails_when_the_mesh_is_stopped(tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    gate = mesh.spawn("gate", Gate).get(20)
    pending = gate.wait_for.call(str(tmp_path / "never"))
    mesh.stop(grace=0)
    with pytest.raises(Exception, match="was stopped"):
        pending.get(20)


def test_stop_waits_for_a_call_that_ends_within_the_grace(tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    gate = mesh.spawn("gate", Gate).get(20)
    pending = gate.wait_for.call(str(tmp_path / "open"))
    thread = threading.Thread(target=mesh.stop)
    thread.start()
    (tmp_path / "open").touch()
    assert pending.get(20).values() == [0, 1]
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("maker", ["script", "rank"])
def test_what_was_sent_before_stop_is_served(maker: str) -> None:
    """Although no rank has been connected to yet; and whoever has made the mesh."""
    if maker == "script":
        assert call_and_stop(5) == [[20, 20]] * 5
    else:
        echo = proc_mesh(n=1).spawn("echo", Echo)
        assert echo.apply.call_one(call_and_stop, 5).get(40) == [[20, 20]] * 5


def call_and_stop(times: int) -> list[list[int]]:
    last: list[list[int]] = []
    for _ in range(times):
        mesh = proc_mesh(n=2)
        clock = mesh.spawn("clock", Clock)
        ticks = [clock.tick.call() for _ in range(20)]
        mesh.stop()
        last.append(ticks[-1].get(20).values())
    return last


def test_a_rank_that_will_not_wait_ends_its_mesh_at_once(tmp_path: Path) -> None:
    """A stop without grace overrules the one that is under way."""
    echo = proc_mesh(n=1).spawn("echo", Echo)
    assert echo.apply.call_one(stop_again, str(tmp_path / "never")).get(40)


def stop_again(gate: str) -> bool:
    mesh = proc_mesh(n=2)
    pending = mesh.spawn("gate", Gate).get(20).wait_for.call(gate)
    patient = mesh._begin_stop(600.0)
    mesh.stop(0.0)
    return patient.get(0) is None and isinstance(pending.exception(20), MeshStopped)


def test_a_slice_is_not_stopped() -> None:
    mesh = proc_mesh(n=2)
    with pytest.raises(UsageError, match="as a whole"):
        mesh.slice(n=0).stop()
    with pytest.raises(UsageError, match="as a whole"):
        mesh.slice(n=slice(0, 1)).stop()
    assert len(mesh.spawn("echo", Echo).pid.call().get()) == 2
    mesh.rename(n="m").stop()


def test_two_meshes_live_and_end_apart() -> None:
    one, two = proc_mesh(n=1), proc_mesh(n=2)
    first, second = one.spawn("clock", Clock), two.spawn("clock", Clock, 10)
    assert first.tick.call().get().values() == [1]
    one.stop()
    assert second.tick.call().get().values() == [11, 11]


def test_shutdown_ends_everything_and_a_later_mesh_starts_anew() -> None:
    mesh = proc_mesh(n=2)
    echo = mesh.spawn("echo", Echo)
    pids = echo.pid.call().get().values()
    shutdown_context()
    wait_until(lambda: none_alive(pids))
    shutdown_context()
    for use in (echo.pid.call, lambda: mesh.spawn("other", Echo)):
        with pytest.raises(ShutdownError, match=r"the meshes of this program were ended, by shutdown_context\(\)"):
            use()
    assert proc_mesh(n=1).spawn("echo", Echo).rank.call().get().values() == [0]
    with pytest.raises(MeshStopped):
        echo.pid.call().get(20)


def test_what_the_end_of_everything_has_stopped_may_be_stopped_again() -> None:
    with proc_mesh(n=2) as mesh, this_host() as host:
        part = host.spawn_procs({"n": 1})
        shutdown_context()
        assert mesh.stop().get(20) is None
    assert part.stop().get(20) is None and host.stop().get(20) is None
    assert proc_mesh(n=1).spawn("echo", Echo).rank.call().get().values() == [0]
    assert mesh.rename(n="m").stop().get(20) is None


def test_a_mesh_that_comes_while_everything_ends_is_refused_and_harms_no_later_one(tmp_path: Path) -> None:
    """It was started, and lost its runtime to the end of those before it, as did all after it."""
    mesh = proc_mesh(n=1)
    gate, root = mesh.spawn("gate", Gate).get(20), start_root()
    waits = gate.wait_for.call_one(str(tmp_path / "open"))
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(shutdown_context)
        wait_until(lambda: root.ending.closed)
        with pytest.raises(ShutdownError, match="no new mesh can be started"):
            proc_mesh(n=1)
        (tmp_path / "open").touch()
        assert mesh.stop().get(20) is None
        ending.result(20)
    assert waits.get(20) == 0
    assert proc_mesh(n=1).spawn("echo", Echo).rank.call().get().values() == [0]


@pytest.mark.slow
def test_fifty_meshes_in_a_row_leave_nothing() -> None:
    """The fixture of this folder looks at descriptors, threads, processes and files afterwards; here at memory maps."""
    maps = 0
    for round_ in range(50):
        with proc_mesh(n=1) as mesh:
            assert mesh.spawn("echo", Echo).rank.call_one().get(20) == 0
        if round_ == 9:
            maps = len(psutil.Process().memory_maps(grouped=False))
            fds = psutil.Process().num_fds()
            threads = threading.active_count()
    assert psutil.Process().num_fds() <= fds
    assert threading.active_count() <= threads
    assert len(psutil.Process().memory_maps(grouped=False)) < maps + 40


# ---- actors that are stopped while their processes live on


def on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class AsyncApply(Actor):
    @endpoint
    async def apply(self, function: Any, *args: Any) -> Any:
        return function(*args)


class Asker(Actor):
    """Calls others through handles that it is given, and keeps."""

    def __init__(self) -> None:
        self.handles: dict[str, Any] = {}

    @endpoint
    def ask(self, name: str, handle: Any = None) -> Any:
        """Return the answer, or the error, of ``apply(on_main_thread)`` through a handle."""
        if handle is not None:
            self.handles[name] = handle
        try:
            return self.handles[name].apply.call_one(on_main_thread).get(20)
        except MeshStopped as error:
            return error


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Echo, AsyncApply])
def test_two_hundred_actors_in_a_row_leave_nothing_on_their_rank(cls: type[Any]) -> None:
    """Another rank calls each of them too; every one of them has the main thread of its rank."""
    mesh = proc_mesh(n=2)
    here = mesh.slice(n=0)
    asker = mesh.slice(n=1).spawn("asker", Asker).get(20)
    processes: list[psutil.Process] = []
    before = []
    for index in range(200):
        actor = here.spawn(f"actor{index}", cls)
        assert actor.apply.call_one(on_main_thread).get(20)
        assert asker.ask.call_one("it", actor).get(20)
        if index == 2:  # the first ones have opened what stays: links between the two, and what a loop keeps
            processes = [psutil.Process(pid) for pid in mesh.spawn("pids", Echo).pid.call().get(20).values()]
            before = [(process.num_fds(), process.num_threads()) for process in processes]
        assert actor.stop().get(20) is None
    with pytest.raises(MeshStopped):
        actor.apply.call_one(on_main_thread).get(20)

    def as_before() -> bool:
        # The rank that asks reads that its last link is of no use any more when it waits for something again.
        assert isinstance(asker.ask.call_one("it").get(20), MeshStopped)
        now = [(process.num_fds(), process.num_threads()) for process in processes]
        return all(
            fds <= old_fds and threads <= old for (fds, threads), (old_fds, old) in zip(now, before, strict=True)
        )

    wait_until(as_before, 20)


@pytest.mark.parametrize("cls", [Echo, AsyncApply])
def test_the_next_actor_has_the_main_thread(cls: type[Any]) -> None:
    mesh = proc_mesh(n=2)
    beside = mesh.spawn("first", cls)
    assert beside.apply.call(on_main_thread).get(20).values() == [True, True]
    assert mesh.spawn("second", cls).apply.call(on_main_thread).get(20).values() == [False, False]
    beside.slice(n=1).stop()
    third = mesh.spawn("third", cls)
    assert third.apply.call(on_main_thread).get(20).values() == [False, True]


def test_every_call_to_a_stopped_actor_is_told_so() -> None:
    """Through handles that have a link and those that have none, in this process and in another one."""
    mesh = proc_mesh(n=3)
    echo = mesh.slice(n=slice(0, 2)).spawn("echo", Echo).get(20)
    askers = mesh.slice(n=slice(1, 3)).spawn("asker", Asker).get(20)
    one = echo.slice(n=0)
    assert askers.slice(n=1).ask.call_one("old", one).get(20) is True
    echo.stop()
    for _ in range(3):
        calls: list[Any] = [echo.rank.call(), echo.slice(n=1).rank.call_one(), echo.rank.choose()]
        for call in (*calls, *echo.rank.stream()):
            with pytest.raises(
                MeshStopped, match=r"echo.rank\(\) failed: rank \d .*was stopped \(the call did not run\)"
            ):
                call.get(20)
        echo.nothing.broadcast()
        errors = [askers.slice(n=1).ask.call_one("old").get(20), *askers.ask.call("new", one).get(20).values()]
        assert all(isinstance(error, MeshStopped) and not error.may_have_run for error in errors)
    assert echo.stop().get(20) is None


def test_every_handle_reaches_the_actor_that_begins_anew() -> None:
    mesh = proc_mesh(n=2)
    asker = mesh.slice(n=1).spawn("asker", Asker).get(20)
    old = mesh.slice(n=0).spawn("again", Echo, "old")
    assert asker.ask.call_one("it", old).get(20) is True
    for index in range(20):
        old.stop()
        if index % 2:
            assert isinstance(asker.ask.call_one("it").get(20), MeshStopped)
        new = mesh.slice(n=0).spawn("again", Echo, str(index)).get(20)
        assert old.greet.call_one("you").get(20) == new.greet.call_one("you").get(20) == f"{index} you!"
        assert asker.ask.call_one("it").get(20) is True


def test_an_actor_is_stopped_and_spawned_without_waiting() -> None:
    """STOP, INIT and calls are on their way at once."""
    mesh = proc_mesh(n=2)

    async def main() -> list[int]:
        clock = mesh.spawn("clock", Clock)
        calls = []
        for index in range(50):
            clock.tick.broadcast()
            calls.append(clock.tick.call())
            clock.stop()
            clock = mesh.spawn("clock", Clock, 10 * index)
        return [value for call in calls for value in (await call).values()]

    expected = [10 * max(0, index - 1) + 2 for index in range(50) for _ in range(2)]
    assert asyncio.run(main()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Echo, AsyncEcho])
def test_each_call_gets_its_answer_or_is_told_while_an_actor_comes_and_goes(cls: type[Any]) -> None:
    mesh = proc_mesh(n=2)
    echo = mesh.spawn("echo", cls).get(20)
    over = threading.Event()

    def call(number: int) -> int:
        answered = 0
        while not over.is_set():
            future = echo.echo.call(number)
            error = future.exception(20)
            assert error is None or (isinstance(error, MeshStopped) and not error.may_have_run), error
            if error is None:
                assert future.get().values() == [number, number]
                answered += 1
        return answered

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(call, number) for number in range(4)]
        try:
            for _ in range(50):
                echo.stop()
                mesh.spawn("echo", cls).get(20)
        finally:
            over.set()
        assert all(caller.result(30) for caller in callers)


def test_an_actor_is_stopped_with_calls_of_others_that_are_not_read_yet(tmp_path: Path) -> None:
    """What has come before STOP is served; what comes behind is refused, however much there is of it."""
    mesh = proc_mesh(n=1)
    gate = mesh.spawn("gate", Gate).get(20)
    waiting = gate.wait_for.call_one(str(tmp_path / "open"))
    before = [gate.ping.call_one() for _ in range(100)]
    stopped = threading.Thread(target=gate.stop)
    stopped.start()
    (tmp_path / "open").touch()
    stopped.join(20)
    behind = [gate.ping.call_one() for _ in range(1000)]
    assert waiting.get(20) == 0 and [call.get(20) for call in before] == ["pong"] * 100
    for call in behind:
        with pytest.raises(MeshStopped):
            call.get(20)

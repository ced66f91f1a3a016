"""``Future``: got, awaited and called back from any thread and any loop; time-outs that name who is missing."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

from meshrt import ActorError, ActorMesh, CallTimeout, Future, proc_mesh
from tests.support.actors import Clock, Echo, Failing, Gate
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program


def run_asyncio(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(main)


def run_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


LOOPS = pytest.mark.parametrize("run", [run_asyncio, run_uvloop])


def test_get_is_repeatable_and_gives_the_same_object() -> None:
    future = proc_mesh(n=2).spawn("echo", Echo).rank.call()
    assert future.get(20) is future.get() is future.result() is future.result(0)
    assert future.done() and future.exception() is None
    assert repr(future) == "<Future done>"


def test_an_error_that_is_kept_holds_nothing_of_whoever_asked_for_it() -> None:
    """No cycle that keeps a caller's arrays until the collector comes."""
    mesh = proc_mesh(n=1)
    failing, gate = mesh.spawn("failing", Failing), mesh.spawn("gate", Gate)

    class Large:
        pass

    def ask() -> weakref.ref[Large]:
        large = Large()
        error = failing.fail.call().exception(20)
        assert isinstance(error, ActorError)
        return weakref.ref(large)

    def ask_too_early() -> weakref.ref[Large]:
        large = Large()
        error = waiting.exception(0)
        assert isinstance(error, CallTimeout)
        return weakref.ref(large)

    waiting = gate.wait_for.call("/nowhere")
    with pytest.raises(ValueError, match="invalid timeout -1"):
        waiting.exception(-1)
    gc.disable()
    try:
        assert ask()() is None
        assert ask_too_early()() is None
    finally:
        gc.enable()


def test_the_same_error_each_time_and_its_traceback_does_not_grow() -> None:
    future = proc_mesh(n=1).spawn("failing", Failing).fail.call_one()
    with pytest.raises(ActorError) as first:
        future.get(20)
    for _ in range(3):
        with pytest.raises(ActorError) as again:
            future.get()
        assert again.value is first.value
    depth, trace = 0, first.value.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 5
    assert future.exception() is first.value and future.done()


def test_done_becomes_true_without_anybody_waiting(tmp_path: Path) -> None:
    gate = proc_mesh(n=1).spawn("gate", Gate).get(20)
    future = gate.wait_for.call_one(str(tmp_path / "open"))
    assert not future.done() and repr(future) == "<Future pending>"
    (tmp_path / "open").touch()
    wait_until(future.done)
    assert future.get(0) == 0


def test_a_timeout_names_the_missing_ranks_and_consumes_nothing(tmp_path: Path) -> None:
    gate = proc_mesh(hosts=2, gpus=2).spawn("gate", Gate).get(20)
    future = gate.wait_for.call(str(tmp_path / "open"), ranks=(1, 2))
    wait_until(lambda: missing(future) == [1, 2])
    with pytest.raises(CallTimeout) as caught:
        future.get(0.01)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert error.total == 4 and error.seconds == 0.01
    assert [place.coordinates for place in error.missing] == [(("hosts", 0), ("gpus", 1)), (("hosts", 1), ("gpus", 0))]
    assert "gate.wait_for()" in str(error) and "from 2 of 4 (ranks 1-2)" in str(error)
    assert isinstance(future.exception(0), CallTimeout)
    (tmp_path / "open").touch()
    assert future.get(20).values() == [0, 1, 2, 3]


def missing(future: Future[Any]) -> list[int]:
    error = future.exception(0.01)
    return [place.rank for place in error.missing] if isinstance(error, CallTimeout) else []


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), float("-inf")])
def test_a_timeout_that_is_none_is_refused(seconds: float, tmp_path: Path) -> None:
    gate = proc_mesh(n=1).spawn("gate", Gate)
    future = gate.wait_for.call_one(str(tmp_path / "open"))
    with pytest.raises(ValueError, match="non-negative, finite number of seconds"):
        future.get(seconds)
    (tmp_path / "open").touch()
    assert future.get(20) == 0


@LOOPS
def test_await_on_a_loop(run: Callable[..., Any]) -> None:
    echo = proc_mesh(n=2).spawn("echo", Echo)

    async def main() -> None:
        assert (await echo.rank.call()).values() == [0, 1]
        answers = await asyncio.gather(*(ask(echo, number) for number in range(50)))
        assert answers == list(range(50))
        assert [await future for future in echo.echo.stream(7)] == [7, 7]

    async def ask(echo: ActorMesh[Echo], number: int) -> Any:
        return await echo.slice(n=number % 2).echo.call_one(number)

    run(main())
    assert echo.rank.call().get(20).values() == [0, 1]


@LOOPS
def test_several_awaiters_and_a_cancelled_one(run: Callable[..., Any], tmp_path: Path) -> None:
    gate = proc_mesh(n=1).spawn("gate", Gate).get(20)

    async def main() -> None:
        future = gate.wait_for.call_one(str(tmp_path / "open"))

        async def wait() -> Any:
            return await future

        waiters = [asyncio.create_task(wait()) for _ in range(4)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiters[0]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.01)
        (tmp_path / "open").touch()
        assert await asyncio.wait_for(asyncio.gather(*waiters[1:]), 20) == [0, 0, 0]
        assert await future == 0 and future.get() == 0

    run(main())


@LOOPS
def test_an_awaited_error_is_the_error(run: Callable[..., Any]) -> None:
    failing = proc_mesh(n=2).spawn("failing", Failing)

    async def main() -> None:
        with pytest.raises(ActorError) as caught:
            await failing.fail.call((1,))
        assert caught.value.rank == 1

    run(main())


def test_one_future_awaited_on_two_loops_and_got_in_a_thread(tmp_path: Path) -> None:
    gate = proc_mesh(n=1).spawn("gate", Gate).get(20)
    future = gate.wait_for.call_one(str(tmp_path / "open"))
    begun = threading.Semaphore(0)

    async def wait() -> Any:
        begun.release()
        return await future

    def get() -> Any:
        begun.release()
        return future.get(20)

    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(run_asyncio, wait()), pool.submit(run_uvloop, wait()), pool.submit(get)]
        for _ in waiting:
            assert begun.acquire(timeout=20)
        (tmp_path / "open").touch()
        assert [done.result(20) for done in waiting] == [0, 0, 0]


def test_many_threads_get_many_futures() -> None:
    clock = proc_mesh(n=2).spawn("clock", Clock).get(20)

    def work(_: int) -> list[int]:
        return [value for _ in range(40) for value in clock.tick.call().get(30).values()]

    with ThreadPoolExecutor(8) as pool:
        seen = [value for values in pool.map(work, range(8)) for value in values]
    assert sorted(seen) == sorted(list(range(1, 321)) * 2)


def test_a_thread_gets_while_the_main_thread_holds_the_same_future(tmp_path: Path) -> None:
    gate = proc_mesh(n=1).spawn("gate", Gate).get(20)
    future = gate.wait_for.call_one(str(tmp_path / "open"))
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(future.get(20))) for _ in range(3)]
    for thread in threads:
        thread.start()
    opener = threading.Timer(0.02, (tmp_path / "open").touch)
    opener.start()
    got.append(future.get(20))
    for thread in [*threads, opener]:
        thread.join(20)
    assert got == [0, 0, 0, 0]


def test_callbacks_run_although_nobody_waits(tmp_path: Path) -> None:
    gate = proc_mesh(n=1).spawn("gate", Gate).get(20)
    future = gate.wait_for.call_one(str(tmp_path / "open"))
    called: list[Any] = []
    arrived = threading.Event()
    future.add_done_callback(lambda done: called.append((done is future, done.get())))
    future.add_done_callback(lambda _: arrived.set())
    assert not called
    (tmp_path / "open").touch()
    assert arrived.wait(20)
    assert called == [(True, 0)]
    future.add_done_callback(lambda _: called.append("at once"))
    assert called[-1] == "at once"


def test_a_callback_that_raises_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    echo = proc_mesh(n=1).spawn("echo", Echo)
    future = echo.echo.call_one(1)
    arrived = threading.Event()

    def bad(_: Future[Any]) -> None:
        raise ZeroDivisionError("in a callback")

    future.add_done_callback(bad)
    future.add_done_callback(lambda _: arrived.set())
    assert arrived.wait(20)
    assert "a done-callback raised" in caplog.text and "in a callback" in caplog.text
    assert echo.echo.call_one(2).get(20) == 2


def test_get_inside_a_running_loop_still_works() -> None:
    echo = proc_mesh(n=1).spawn("echo", Echo)

    async def main() -> Any:
        return echo.echo.call_one(5).get(20)

    assert asyncio.run(main()) == 5


def test_a_callback_may_call_and_get() -> None:
    echo = proc_mesh(n=1).spawn("echo", Echo).get(20)
    second: list[Any] = []
    done = threading.Event()

    def again(future: Future[Any]) -> None:
        second.append(echo.echo.call_one(future.get() + 1).get(20))
        done.set()

    echo.echo.call_one(1).add_done_callback(again)
    assert done.wait(20)
    assert second == [2]

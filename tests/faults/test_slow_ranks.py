"""Ranks that do not take what is sent to them: callers wait, or are told; memory stays bounded."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, ActorError, MeshBusy, ProcessDied, concurrent_endpoint, endpoint, proc_mesh
from meshrt.transport.process import current_runtime
from meshrt.transport.queues import LOOP_LIMIT
from tests.faults.watch import LONG
from tests.support.pausing import paused
from tests.support.waiting import wait_until

MIB = 1 << 20
DATA = b"x" * 100_000
CALLS = 10_000


class Sink(Actor):
    """Takes data."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def take(self, data: bytes, number: int = 0) -> int:
        self.taken.append(number)
        return len(data)

    @endpoint
    def all(self) -> list[int]:
        return self.taken


class Source(Actor):
    """Calls a sink, on the event loop of its rank."""

    @concurrent_endpoint
    async def flood(self, sink: Any) -> None:
        before = memory()
        try:
            for _ in range(CALLS):
                sink.take.broadcast(DATA)
        finally:
            assert memory() - before < 96 * MIB


def memory() -> int:
    """Return how much this process has, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sinks(count: int) -> tuple[Any, list[int]]:
    made = proc_mesh(n=count).spawn("sink", Sink).get(LONG)
    return made, made.pid.call().get(LONG).values()


def flood(sink: Any) -> None:
    for _ in range(CALLS):
        sink.take.broadcast(DATA)


def run(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(function(), 3 * LONG))


@pytest.mark.slow
@pytest.mark.row("N6")
@pytest.mark.parametrize("verb", ["call", "broadcast", "stream"])
def test_an_event_loop_calls_a_stopped_rank(verb: str) -> None:
    """It is told; a call to several ranks reaches all of them or none."""
    mesh, pids = sinks(2)
    slow, quick = mesh.slice(n=0), mesh.slice(n=1)

    async def main() -> None:
        before, sent = memory(), 0
        with paused(pids[0]):
            error = None
            for number in range(CALLS):
                try:
                    getattr(mesh.take, verb)(DATA, number)
                    sent += 1
                except MeshBusy as busy:
                    error = busy
            assert memory() - before < 96 * MIB
            assert error is not None and (error.rank, error.others, error.limit) == (0, (), LOOP_LIMIT)
            where = f"rank 0 (n=0) on {error.place.host}, pid {pids[0]}"
            assert f"sink.take() was not sent: {where} is not reading its messages" in str(error)
            assert "await sink.take.wait_ready()" in str(error) and error.queued >= LOOP_LIMIT
            # The other rank is not refused anything, and is chosen.
            assert await quick.take.call_one(DATA, -1) == len(DATA)
            assert [await mesh.take.choose(DATA, -1) for _ in range(10)] == [len(DATA)] * 10
            with pytest.raises(MeshBusy):
                slow.take.call_one(b"")
        # Nobody can tell how a rank that runs is scheduled: room comes, and all that was sent has arrived.
        await mesh.take.wait_ready()
        expects = list(range(sent))
        assert [[number for number in found if number >= 0] for found in (await mesh.all.call()).values()] == [
            expects
        ] * 2

    run(main)


@pytest.mark.row("N6")
def test_tasks_wait_for_a_stopped_rank_in_order() -> None:
    sink, pids = sinks(1)

    async def main() -> None:
        called: list[int] = []

        async def one(number: int) -> int:
            await sink.take.wait_ready()
            called.append(number)
            return int(await sink.take.call_one(DATA, number))

        before = memory()
        with paused(pids[0]):
            tasks = [asyncio.create_task(one(number)) for number in range(2000)]
            # Those that a thread would have sent, too, and no others; one is given up, and holds up nobody.
            driver = current_runtime().driver
            await asyncio.to_thread(wait_until, lambda: driver.queues.actions)
            assert len(called) < 50
            gives_up = len(called)
            tasks[gives_up].cancel()
            waits = driver.waits.all()
            assert len(waits) == len(called) + 1, "one for each call, and one for room"
            assert {(wait.actor, wait.endpoint, wait.ranks) for wait in waits} == {("sink", "take", (0,))}
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sink.take.wait_ready(), 0.05)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert memory() - before < 96 * MIB
        assert isinstance(found.pop(gives_up), asyncio.CancelledError) and set(found) == {len(DATA)}
        assert await sink.all.call_one() == [number for number in range(2000) if number != gives_up]

    run(main)


def test_the_end_of_a_stopped_rank_ends_the_wait_for_it() -> None:
    sink, pids = sinks(1)

    async def main() -> None:
        with paused(pids[0]):
            with pytest.raises(MeshBusy):
                flood(sink)
            waiting = asyncio.create_task(sink.take.wait_ready())
            await asyncio.sleep(0)
            os.kill(pids[0], signal.SIGKILL)
            await waiting
        with pytest.raises(ProcessDied):
            await sink.take.call_one(DATA)

    run(main)


@pytest.mark.slow
@pytest.mark.row("N6")
def test_threads_wait_for_a_stopped_rank() -> None:
    sink, pids = sinks(1)
    before = memory()
    sent: list[Any] = []

    def send(count: int) -> None:
        sent.extend(sink.take.call_one(DATA) for _ in range(count))

    with paused(pids[0]):
        threads = [threading.Thread(target=functools.partial(send, CALLS // 10)) for _ in range(4)]
        for thread in threads:
            thread.start()
        driver = current_runtime().driver
        (out,) = [out for out in driver._links.values() if out.key[2] == "sink"]
        wait_until(lambda: out.waiting_bytes() > MIB and len(driver.followers) == 3)
        assert all(thread.is_alive() for thread in threads)
        assert out.waiting_bytes() < 2 * MIB
    for thread in threads:
        thread.join(3 * LONG)
    assert memory() - before < 96 * MIB
    assert [future.get(LONG) for future in sent] == [len(DATA)] * (4 * (CALLS // 10))


def test_an_actor_that_calls_a_stopped_rank_is_told() -> None:
    sink, pids = sinks(1)
    source = proc_mesh(n=1).spawn("source", Source).get(LONG)
    with paused(pids[0]):
        error = source.flood.call_one(sink).exception(3 * LONG)
    assert isinstance(error, ActorError), error
    assert isinstance(error.exception, MeshBusy) and error.exception.rank == 0

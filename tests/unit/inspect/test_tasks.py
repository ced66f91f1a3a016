"""Looking at the tasks of a real event loop, which runs on another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.inspect.sampling import Sample, Sampler
from meshrt.inspect.tasks import Tasks
from tests.support.waiting import wait_until

WAIT = 20


class Served:
    """An actor whose endpoint is a coroutine, on a loop of its own."""

    def __init__(self) -> None:
        self.thread = 0
        self.loop = asyncio.new_event_loop()
        self.task: asyncio.Task[None] | None = None
        self.sampler = Sampler()

    def state(self) -> ActorState:
        call = EndpointCall("m", "worker", 0, "step", [])
        return ActorState("worker", self.thread, call, self.loop, self.task)

    def samples(self) -> list[Sample]:
        return self.sampler.samples([self.state()], actor="worker")


@contextmanager
def serving(*endpoints: Coroutine[Any, Any, None]) -> Iterator[Served]:
    """Run coroutines; the first one is the endpoint."""
    served = Served()
    loop = served.loop
    tasks = [loop.create_task(each) for each in endpoints]
    served.task = tasks[0]
    # No function of this file: that would be user code on the stack.
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    served.thread = thread.ident or 0
    try:
        yield served
    finally:
        for task in tasks:
            loop.call_soon_threadsafe(task.cancel)
        wait_until(lambda: all(task.done() for task in tasks), WAIT)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT)
        loop.close()


async def turns() -> None:
    while True:  # noqa: ASYNC110  # its turns are what is looked at
        await asyncio.sleep(0)


async def waits() -> None:
    await asyncio.Event().wait()


def test_a_task_that_waits_for_its_turn_only_is_as_its_thread_is() -> None:
    with serving(turns(), turns()) as served:
        wait_until(lambda: served.samples()[0].mark.load > 0, WAIT)
        found = served.samples()
        assert {sample.state for sample in found} == {"running"} and not any(sample.waits for sample in found)
        assert "turns" in [entry.code.co_name for sample in found for entry in sample.stack]
        wait_until(lambda: served.sampler.pulse([served.state()])["worker"][1].load > 0, WAIT)


def test_a_task_that_waits_for_something_is_blocked_though_others_take_turns() -> None:
    with serving(waits(), turns()) as served:
        wait_until(lambda: [sample.state for sample in served.samples()[:1]] == ["blocked"], WAIT)
        own = served.samples()[0]
        assert own.endpoint == "step" and [entry.code.co_name for entry in own.stack][:1] == ["waits"]


async def awaits_one_that_takes_turns() -> None:
    await asyncio.gather(asyncio.ensure_future(turns()), waits())


def test_who_waits_for_a_task_that_takes_turns_is_not_blocked() -> None:
    with serving(awaits_one_that_takes_turns()) as served:
        wait_until(lambda: served.samples()[0].mark.load > 0, WAIT)
        assert served.samples()[0].state == "running"
        wait_until(lambda: served.sampler.pulse([served.state()])["worker"][1].load > 0, WAIT)


async def letters() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield "a"


async def waits_for_the_next() -> None:
    await anext(letters(), None)


async def waits_deep(depth: int = 300) -> None:
    await (waits_deep(depth - 1) if depth else waits())


@pytest.mark.parametrize("endpoint", [waits_for_the_next, waits_deep])
def test_what_cannot_be_followed_to_its_end_is_blocked(endpoint: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with serving(endpoint(), turns()) as served:
        wait_until(lambda: [sample.state for sample in served.samples()[:1]] == ["blocked"], WAIT)


def test_a_task_whose_future_is_done_waits_for_its_turn() -> None:
    loop = asyncio.new_event_loop()
    future = loop.create_future()

    async def waits_for_it() -> None:
        await future

    async def look() -> list[bool]:
        tasks = Tasks()
        task = loop.create_task(waits_for_it(), name="waits")
        await asyncio.sleep(0)
        found = []
        for _ in range(2):
            found += [each.ready for each in tasks.look(loop) if each.name == "waits"]
            if not future.done():
                future.set_result(None)
        await task
        return found

    assert loop.run_until_complete(look()) == [False, True]
    loop.close()

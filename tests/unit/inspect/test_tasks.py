"""Looking at the tasks of a real event loop, which runs on another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.inspect.sampling import Sample, Sampler
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

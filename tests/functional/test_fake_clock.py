"""`meshrt.testing.fake_clock`: actors whose time the test sets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from meshrt import Actor, ActorMesh, CallTimeout, MeshStopped, concurrent_endpoint, endpoint, testing
from meshrt.errors import MeshError, UsageError
from meshrt.mesh.program import start_root
from meshrt.testing import clock as clocks
from tests.support.actors import Echo
from tests.support.waiting import wait_until

#: Seconds of the world: the thread of a test waits by its clock.
WAIT = 20


class Poller(Actor):
    def __init__(self) -> None:
        self.at: list[float] = []

    @endpoint
    async def poll(self, every: float, times: int = 1) -> list[float]:
        for _ in range(times):
            await asyncio.sleep(every)
            self.at.append(asyncio.get_running_loop().time())
        return self.at

    @endpoint
    async def limited(self, seconds: float) -> str:
        try:
            async with asyncio.timeout(seconds):
                await asyncio.sleep(1000)
        except TimeoutError:
            return "timed out"
        return "slept"

    @endpoint
    async def count(self) -> int:
        return len(self.at)

    @concurrent_endpoint
    async def note(self, after: float) -> float:
        await asyncio.sleep(after)
        return asyncio.get_running_loop().time()

    @endpoint
    async def in_a_thread(self, function: Callable[[], Any]) -> Any:
        await asyncio.sleep(1)
        return await asyncio.to_thread(function)


class Asking(Actor):
    """Calls another actor, in a plain endpoint."""

    @endpoint
    def ask(self, other: ActorMesh[Poller], every: float, timeout: float) -> list[float] | str:
        try:
            return other.poll.call_one(every).get(timeout)
        except CallTimeout:
            return "no answer"


class AsyncAsking(Actor):
    """The same with an event loop of its own."""

    @endpoint
    async def ask(self, other: ActorMesh[Poller], every: float, timeout: float) -> list[float] | str:
        try:
            return await asyncio.wait_for(other.poll.call_one(every), timeout)
        except TimeoutError:
            return "no answer"


def test_what_is_due_on_the_way_runs_in_its_order_at_its_time() -> None:
    with testing.fake_clock() as clock, testing.local(Poller) as poller:
        first, second = poller.note.call_one(7.5), poller.note.call_one(0.3)
        polls = poller.poll.call_one(0.1, 100)
        clock.advance(0.3)
        assert second.done() and not first.done() and second.get(WAIT) == pytest.approx(0.3)
        clock.advance(9.7)
        assert first.get(WAIT) == pytest.approx(7.5)
        assert polls.get(WAIT) == pytest.approx([number / 10 for number in range(1, 101)])
        limited = poller.limited.call_one(30)
        clock.advance(29)
        assert not limited.done()
        clock.advance(1)
        assert limited.get(WAIT) == "timed out"
        assert clock.time() == 40


@pytest.mark.parametrize("cls", [Asking, AsyncAsking])
def test_actors_that_wait_for_others(cls: type[Asking]) -> None:
    with testing.fake_clock() as clock, testing.local_mesh(n=2) as mesh:
        pollers, asking = mesh.spawn("poller", Poller), mesh.spawn("asking", cls)
        answers = asking.ask.call(pollers.slice(n=1), 60, timeout=200)
        clock.advance(60)
        assert not answers.done(), "the second one waits for the first"
        clock.advance(60)
        assert answers.get(WAIT).values()[1][-1] in (60, 120)
        late = asking.slice(n=0).ask.call_one(pollers.slice(n=1), 60, timeout=50)
        clock.advance(49)
        assert not late.done()
        clock.advance(1)
        assert late.get(WAIT) == "no answer"


def test_time_limits_of_calls_and_waits() -> None:
    with testing.fake_clock() as clock, testing.local(Poller) as poller:
        limited = poller.poll.options(timeout=30).call_one(100)
        with pytest.raises(CallTimeout, match=r"within 0\.01 s"):
            limited.get(0.01)  # of the world: nobody could advance
        clock.advance(30)
        with pytest.raises(CallTimeout, match="within 30 s"):
            limited.get(WAIT)
        found: list[BaseException | None] = []
        waits = poller.poll.call_one(100)
        thread = threading.Thread(target=lambda: found.append(waits.exception(60)))
        thread.start()
        wait_until(lambda: any(ident == thread.ident for ident in _waiting()), WAIT, "the thread waits")
        clock.advance(60)
        thread.join(WAIT)
        assert isinstance(found[0], CallTimeout)


def _waiting() -> list[object]:
    return list(start_root().runtime.driver.waits.entries)


def test_time_goes_on_by_itself_while_the_test_waits() -> None:
    with testing.fake_clock(auto=True) as clock, testing.local_mesh(n=2) as mesh:
        pollers, asking = mesh.spawn("poller", Poller), mesh.spawn("asking", Asking)
        assert pollers.slice(n=0).poll.call_one(60, 10).get(WAIT) == [60.0 * number for number in range(1, 11)]
        assert asking.slice(n=0).ask.call_one(pollers.slice(n=1), 100, timeout=50).get(WAIT) == "no answer"
        assert clock.time() == 650
        clock.advance(50)
        with pytest.raises(CallTimeout, match="the call was cancelled"):
            pollers.poll.options(timeout=30).call(100).get(WAIT)
        assert clock.time() == 730


def test_time_does_not_go_on_while_a_message_is_on_its_way() -> None:
    """Each round finds other threads at other places: a caller let in, an answer read, an actor that hands over."""
    with testing.fake_clock(auto=True) as clock:
        for _ in range(40):
            begun = clock.time()
            with testing.local_mesh(n=1) as mesh:
                poller = mesh.spawn("poller", Poller)
                slow = poller.note.call_one(8)
                assert poller.count.call_one().get(WAIT) == 0 and clock.time() == begun
                poller.stop(grace=20)
                assert slow.get(WAIT) == pytest.approx(begun + 8)
                assert clock.time() == pytest.approx(begun + 8)


def test_the_grace_passes_at_once() -> None:
    with testing.fake_clock() as clock:
        with testing.local(Poller) as poller:
            ends, ends_not = poller.note.call_one(4.5), poller.note.call_one(1e6)
        assert ends.get(WAIT) == 4.5 and clock.time() == 5
        with pytest.raises(MeshStopped):
            ends_not.get(WAIT)
        with testing.local_mesh() as mesh:
            call = mesh.spawn("poller", Poller).poll.call_one(1e6)
            mesh.stop(grace=60)
            assert clock.time() == 65 and call.exception(WAIT) is not None


def test_threads_of_an_event_loop_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.fake_clock() as clock, testing.local(Poller) as poller:
        answer = poller.in_a_thread.call_one(time.monotonic)
        clock.advance(1)
        assert answer.done()
    released = threading.Event()
    _events[:] = [released]
    with testing.fake_clock() as clock, testing.local(Echo) as echo:
        call = echo.apply.call_one(_wait)
        with monkeypatch.context() as patch:
            patch.setattr(clocks, "_PATIENCE", 0.2)
            with pytest.raises(MeshError, match=r"still busy, or wait for what the clock does not control.*: echo$"):
                clock.advance(1)
        released.set()
        clock.advance(1)
        assert call.done() and clock.time() == 1


_events: list[threading.Event] = []


def _wait() -> None:
    _events[0].wait(WAIT)


def test_behind_the_block_time_passes_by_itself() -> None:
    block = testing.fake_clock()
    clock = block.__enter__()
    with testing.local(Poller) as poller:
        clock.advance(5)
        answer = poller.poll.call_one(0.01)
        clock.advance(0)
        with pytest.raises(UsageError, match="only one clock can be active"), testing.fake_clock():
            pass
        block.__exit__(None, None, None)
        assert answer.get(WAIT)[0] > 5
        with pytest.raises(UsageError, match="the block of this clock has ended"):
            clock.advance(1)
        with pytest.raises(CallTimeout):
            poller.poll.call_one(1).get(0.01)
    with testing.fake_clock() as other, pytest.raises(UsageError, match="invalid seconds=-1"):
        other.advance(-1)

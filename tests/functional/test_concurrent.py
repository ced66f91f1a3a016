"""Concurrent endpoints: calls of one actor that run beside each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from meshrt import (
    Actor,
    ActorError,
    ActorMesh,
    CallCancelled,
    MeshStopped,
    Port,
    concurrent_endpoint,
    current_rank,
    endpoint,
    proc_mesh,
    testing,
)
from tests.support.waiting import wait_until

WAIT = 20


class Door(Actor):
    """Calls wait at a door that another call opens."""

    def __init__(self, notes: Path) -> None:
        self.open = asyncio.Event()
        self.order: list[int] = []
        self.notes = notes

    @concurrent_endpoint
    async def wait(self, number: int) -> tuple[int, int]:
        self.order.append(number)
        await self.open.wait()
        return number, current_rank().rank

    @concurrent_endpoint
    async def fail(self) -> None:
        await self.open.wait()
        raise ValueError("behind the door")

    @concurrent_endpoint
    async def cancelled(self) -> None:
        raise asyncio.CancelledError("by itself")

    @endpoint
    def come_in(self) -> list[int]:
        self.open.set()
        return self.order

    @endpoint
    def count(self) -> int:
        return len(self.order)

    @concurrent_endpoint
    async def endless(self) -> None:
        self.order.append(-1)
        try:
            await asyncio.Event().wait()
        finally:
            self._note("cancelled")

    async def __cleanup__(self, exc: Exception | None) -> None:
        self._note("cleaned up")

    def _note(self, what: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{what}\n")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def spawn(notes: Path, **sizes: Any) -> ActorMesh[Door]:
    return proc_mesh(**sizes).spawn("door", Door, notes).get(WAIT)


def test_calls_run_beside_each_other_and_begin_in_order(notes: Path) -> None:
    door = spawn(notes, gpus=2)
    waiting = [door.wait.call(number) for number in range(20)]
    assert door.come_in.call().get(WAIT).values() == [list(range(20))] * 2
    for number, future in enumerate(waiting):
        assert future.get(WAIT).values() == [(number, 0), (number, 1)]


def test_each_call_knows_the_view_that_it_came_through(notes: Path) -> None:
    door = spawn(notes, gpus=3)
    waiting = [door.slice(gpus=slice(begin, 3)).wait.call(begin) for begin in range(3)]
    door.come_in.call().get(WAIT)
    for begin, future in enumerate(waiting):
        assert future.get(WAIT).values() == [(begin, rank) for rank in range(3 - begin)]


def test_the_error_of_one_call_is_its_own(notes: Path) -> None:
    door = spawn(notes, gpus=1)
    waiting, failing = door.wait.call_one(7), door.fail.call_one()
    with pytest.raises(ActorError, match="by itself"):
        door.cancelled.call_one().get(WAIT)
    door.come_in.call_one().get(WAIT)
    with pytest.raises(ActorError, match="behind the door"):
        failing.get(WAIT)
    assert waiting.get(WAIT) == (7, 0)


def test_what_runs_when_the_mesh_is_stopped_comes_to_its_end(notes: Path) -> None:
    mesh = proc_mesh(gpus=1)
    door = mesh.spawn("door", Door, notes).get(WAIT)
    waiting, last = door.wait.call_one(1), door.come_in.call_one()
    mesh.stop()
    assert waiting.get(WAIT) == (1, 0) and last.get(WAIT) == [1]
    assert notes.read_text() == "cleaned up\n"


def test_what_does_not_end_with_the_grace_is_cancelled_before_the_cleanup(notes: Path) -> None:
    mesh = proc_mesh(gpus=1)
    door = mesh.spawn("door", Door, notes).get(WAIT)
    endless = door.endless.call_one()
    wait_until(lambda: door.count.call_one().get(WAIT))
    mesh.stop(grace=0.1)
    with pytest.raises(MeshStopped):
        endless.get(WAIT)
    assert notes.read_text() == "cancelled\ncleaned up\n"


# -- those that answer by a port


class Ported(Actor):
    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.events: list[str] = []

    @concurrent_endpoint(explicit_response_port=True)
    async def start(self, port: Port[str], name: str) -> None:
        port.send(f"{name} has begun")
        try:
            await self.open.wait()
            self.events.append(f"{name} has ended")
        except asyncio.CancelledError:
            self.events.append(f"{name} was cancelled")
            raise

    @concurrent_endpoint(explicit_response_port=True)
    async def hold(self, _port: Port[str]) -> None:
        self.events.append("held")
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("let go")

    @concurrent_endpoint(explicit_response_port=True)
    async def fail(self, _port: Port[str]) -> None:
        await asyncio.sleep(0)
        raise ValueError("raised")

    @concurrent_endpoint
    async def sleep_beside(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    @endpoint
    def come_in(self) -> None:
        self.open.set()

    @endpoint
    def told(self) -> list[str]:
        return self.events


def test_a_call_that_is_answered_goes_on() -> None:
    ported = proc_mesh(n=1).spawn("ported", Ported)
    for name in ("first", "second"):
        assert ported.start.call_one(name).get(WAIT) == f"{name} has begun"
    with pytest.raises(ValueError, match="raised"):
        ported.fail.call_one().get(WAIT)
    assert ported.told.call_one().get(WAIT) == []
    ported.come_in.call_one().get(WAIT)
    wait_until(lambda: ported.told.call_one().get(WAIT) == ["first has ended", "second has ended"], WAIT)


def test_one_that_owes_its_answer_is_cancelled_with_its_call() -> None:
    ported = proc_mesh(n=1).spawn("ported", Ported)
    held = ported.hold.call_one()
    wait_until(lambda: ported.told.call_one().get(WAIT) == ["held"], WAIT)
    assert held.cancel()
    assert isinstance(held.exception(WAIT), CallCancelled)
    wait_until(lambda: held.ended, WAIT, "the rank has said that it runs no more")
    assert ported.told.call_one().get(WAIT) == ["held", "let go"]
    unstarted = ported.hold.call_one()
    unstarted.cancel()
    wait_until(lambda: unstarted.ended, WAIT)
    assert ported.start.call_one("next").get(WAIT) == "next has begun"


def test_those_that_run_when_their_actor_is_stopped_are_cancelled_after_a_grace() -> None:
    with testing.fake_clock(auto=True) as clock, testing.local_mesh(n=1) as mesh:
        ported = mesh.spawn("ported", Ported)
        started, held = ported.start.call_one("first"), ported.hold.call_one()
        assert started.get(WAIT) == "first has begun"
        events = ported.told.call_one().get(WAIT)
        assert events == ["held"]
        ported.stop()
        assert clock.time() == 5
        with pytest.raises(MeshStopped):
            held.get(WAIT)
        assert started.get(WAIT) == "first has begun"


def test_they_have_the_grace_of_the_stop_if_it_has_one() -> None:
    with testing.fake_clock(auto=True) as clock, testing.local_mesh(n=1) as mesh:
        ported = mesh.spawn("ported", Ported)
        slow = ported.sleep_beside.call_one(8)
        assert ported.start.call_one("first").get(WAIT) == "first has begun"
        ported.stop(grace=20)
        assert slow.get(WAIT) == "slept" and round(clock.time()) == 20

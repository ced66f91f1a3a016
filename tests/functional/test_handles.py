"""Handles as arguments; actors that call actors; meshes made inside ranks."""

from __future__ import annotations

import asyncio
import os
import pickle
from typing import Any

import psutil
import pytest

from meshrt import (
    Actor,
    ActorError,
    ActorMesh,
    CallTimeout,
    MeshStopped,
    ProcMesh,
    UsageError,
    endpoint,
    proc_mesh,
)
from tests.support.actors import Clock, Echo, Failing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program


class Caller(Actor):
    """Calls what it is given."""

    def __init__(self, peer: ActorMesh[Any] | None = None) -> None:
        self.peer = peer

    @endpoint
    def ranks_of(self, mesh: ActorMesh[Echo]) -> list[int]:
        values: list[int] = mesh.rank.call().get(20).values()
        return values

    @endpoint
    async def ranks_of_async(self, mesh: ActorMesh[Echo]) -> list[int]:
        first, second = await asyncio.gather(ask(mesh), ask(mesh))
        assert first == second
        return first

    @endpoint
    def tick_peer(self) -> int:
        assert self.peer is not None
        count: int = self.peer.tick.call_one().get(20)
        return count

    @endpoint
    def spawn_on(self, mesh: ProcMesh, name: str) -> ActorMesh[Clock]:
        return mesh.spawn(name, Clock, 40).get(20)

    @endpoint
    def fail_there(self, mesh: ActorMesh[Failing]) -> None:
        mesh.fail.call((1,)).get(20)

    @endpoint
    def wait_init(self, mesh: ActorMesh[Any]) -> None:
        mesh.initialized.get(1)

    @endpoint
    def stop_mesh(self, mesh: ProcMesh) -> None:
        mesh.stop()


class Ping(Actor):
    """Calls its partner, which calls back."""

    def __init__(self) -> None:
        self.partner: ActorMesh[Ping] | None = None

    @endpoint
    def meet(self, partner: ActorMesh[Ping]) -> None:
        self.partner = partner

    @endpoint
    def play(self, left: int) -> int:
        """Throw the ball on; nobody waits for it."""
        if left and self.partner is not None:
            self.partner.play.broadcast(left - 1)
        self.last = left
        return left

    @endpoint
    def seen(self) -> int:
        return getattr(self, "last", -1)

    @endpoint
    def call_back(self, seconds: float, deep: bool) -> str:
        """Ask the partner, which asks this one while it waits: one message at a time, so that can never answer."""
        assert self.partner is not None
        if not deep:
            self.partner.seen.call_one().get(seconds)
            return "answered"
        try:
            self.partner.call_back.call_one(seconds, False).get(20)
        except ActorError as error:
            return error.remote.type
        return "answered"


class Parent(Actor):
    """Makes a mesh of its own."""

    def __init__(self) -> None:
        self.child: ProcMesh | None = None

    @endpoint
    def make(self, count: int) -> tuple[list[int], ActorMesh[Echo]]:
        self.child = proc_mesh(kids=count, name="kids", env={"KID": "1"})
        echo = self.child.spawn("echo", Echo).get(20)
        assert echo.apply.call(os.getenv, "KID").get(20).values() == ["1"] * count
        return echo.pid.call().get(20).values(), echo

    @endpoint
    def end(self) -> None:
        assert self.child is not None
        self.child.stop()

    @endpoint
    def with_block(self) -> list[int]:
        with proc_mesh(n=2) as mesh:
            pids: list[int] = mesh.spawn("echo", Echo).pid.call().get(20).values()
        return pids


async def ask(mesh: ActorMesh[Echo]) -> list[int]:
    values: list[int] = (await mesh.rank.call()).values()
    return values


def test_an_actor_mesh_as_an_argument_views_included() -> None:
    mesh = proc_mesh(n=3)
    echo = mesh.spawn("echo", Echo)
    caller = mesh.spawn("caller", Caller)
    assert caller.ranks_of.call(echo).get(30).values() == [[0, 1, 2]] * 3
    assert caller.ranks_of_async.call(echo.slice(n=slice(1, 3))).get(30).values() == [[0, 1]] * 3
    assert echo == pickle.loads(pickle.dumps(echo)) and hash(echo) == hash(pickle.loads(pickle.dumps(echo)))


def test_an_actor_mesh_as_an_argument_of_init() -> None:
    clock = proc_mesh(n=1).spawn("clock", Clock)
    caller = proc_mesh(n=2).spawn("caller", Caller, clock)
    assert sorted(caller.tick_peer.call().get(20).values()) == [1, 2]
    assert clock.tick.call_one().get(20) == 3


def test_a_proc_mesh_as_an_argument_and_an_actor_mesh_as_a_result() -> None:
    mesh = proc_mesh(n=2)
    caller = proc_mesh(n=1).spawn("caller", Caller)
    clock = caller.spawn_on.call_one(mesh, "clock").get(20)
    assert clock.tick.call().get(20).values() == [41, 41]
    with pytest.raises(UsageError, match="only its owner waits"):
        clock.initialized  # noqa: B018 - the access is the subject


def test_only_the_owner_stops_a_mesh() -> None:
    mesh = proc_mesh(n=1)
    caller = proc_mesh(n=1).spawn("caller", Caller)
    with pytest.raises(ActorError, match="is not owned by this process"):
        caller.stop_mesh.call_one(mesh).get(20)
    with pytest.raises(ActorError, match="was received from another process"):
        caller.wait_init.call_one(mesh.spawn("clock", Clock)).get(20)
    assert mesh.spawn("echo", Echo).rank.call().get(20).values() == [0]


def test_an_error_passes_through_two_actors() -> None:
    failing = proc_mesh(n=2).spawn("failing", Failing)
    caller = proc_mesh(n=1).spawn("caller", Caller)
    with pytest.raises(ActorError) as caught:
        caller.fail_there.call_one(failing).get(20)
    text = str(caught.value)
    assert caught.value.place.actor == "caller"
    assert "failing.fail() raised on rank 1 (n=1)" in text and "LookupError: rank 1 fails" in text


def test_two_actors_throw_a_ball_to_each_other() -> None:
    mesh = proc_mesh(n=2)
    left, right = mesh.slice(n=0).spawn("left", Ping), mesh.slice(n=1).spawn("right", Ping)
    left.meet.call_one(right).get(20)
    right.meet.call_one(left).get(20)
    left.play.call_one(101).get(20)
    wait_until(lambda: (left.seen.call_one().get(20), right.seen.call_one().get(20)) == (1, 0))


@pytest.mark.row("X5")
def test_a_cycle_that_waits_ends_with_its_timeout_and_both_live() -> None:
    mesh = proc_mesh(n=2)
    left, right = mesh.slice(n=0).spawn("left", Ping), mesh.slice(n=1).spawn("right", Ping)
    left.meet.call_one(right).get(20)
    right.meet.call_one(left).get(20)
    assert left.call_back.call_one(0.3, True).get(20) == f"{CallTimeout.__module__}.{CallTimeout.__name__}"
    assert left.seen.call_one().get(20) == right.seen.call_one().get(20) == -1


def test_a_mesh_made_inside_a_rank() -> None:
    parent = proc_mesh(n=1).spawn("parent", Parent)
    pids, echo = parent.make.call_one(2).get(30)
    assert len(set(pids)) == 2 and all(map(psutil.pid_exists, pids))
    assert echo.pid.call().get(20).values() == pids  # its ranks answer the script too
    parent.end.call_one().get(20)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))
    with pytest.raises(MeshStopped):
        echo.pid.call().get(20)


def test_a_mesh_made_inside_a_rank_ends_with_it() -> None:
    mesh = proc_mesh(n=1)
    pids, _ = mesh.spawn("parent", Parent).make.call_one(2).get(30)
    mesh.stop()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))


def test_with_inside_a_rank() -> None:
    parent = proc_mesh(n=2).spawn("parent", Parent)
    pids = [pid for pids in parent.with_block.call().get(30).values() for pid in pids]
    assert len(set(pids)) == 4 and not any(map(psutil.pid_exists, pids))

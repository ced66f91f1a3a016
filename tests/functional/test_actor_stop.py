"""``ActorMesh.stop(grace=)``: what runs at the end of the grace is ended, its callers are told, the rank lives on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from meshrt import (
    Actor,
    CallTimeout,
    MeshStopped,
    UsageError,
    concurrent_endpoint,
    endpoint,
    proc_mesh,
    shutdown_context,
    this_host,
)

pytestmark = pytest.mark.one_program

WAIT = 20
#: Seconds that no test waits for.
LONG = 600


class Noting(Actor):
    def __init__(self, notes: Path, seconds: float = 0) -> None:
        self.notes = notes
        self.note("begins")
        time.sleep(seconds)

    def note(self, text: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{text}\n")

    @endpoint
    def ready(self) -> str:
        return "ready"

    def __cleanup__(self, error: Exception | None) -> None:
        self.note(f"cleaned up: {error}")


class Sleeper(Noting):
    @endpoint
    def sleep(self) -> None:
        self.note("sleeps")
        time.sleep(LONG)

    @endpoint
    def lock(self) -> None:
        self.note("sleeps")
        threading.Event().wait()

    @endpoint
    def wait_for(self, other: Any) -> None:
        self.note("sleeps")
        other.sleep.call_one().get()

    @endpoint
    def catch(self) -> str:
        self.note("sleeps")
        with contextlib.suppress(SystemExit):
            time.sleep(LONG)
        return "ended by itself"

    @endpoint
    def until_let_go(self, until: Path) -> None:
        self.note("sleeps")
        while not until.exists():
            time.sleep(0.01)


class AsyncSleeper(Noting):
    @endpoint
    async def sleep(self) -> None:
        self.note("sleeps")
        await asyncio.sleep(LONG)

    @endpoint
    async def lock(self) -> None:
        self.note("sleeps")
        time.sleep(LONG)  # noqa: ASYNC251  it blocks the event loop

    @concurrent_endpoint
    async def beside(self, seconds: float) -> str:
        self.note("sleeps")
        await asyncio.sleep(seconds)
        return "slept"


def begun(notes: Path, times: int = 1, what: str = "sleeps") -> None:
    """Wait until that was noted so often."""
    deadline = time.monotonic() + WAIT
    while not notes.exists() or notes.read_text().split("\n").count(what) < times:
        assert time.monotonic() < deadline, notes.read_text() if notes.exists() else "nothing was noted"
        time.sleep(0.01)


@pytest.mark.parametrize("cls", [Sleeper, AsyncSleeper])
@pytest.mark.parametrize("how", ["sleep", "lock"])
def test_a_call_that_hangs_is_ended_and_the_rank_lives_on(cls: type[Any], how: str, tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    notes = tmp_path / "notes"
    sleeper = mesh.spawn("sleeper", cls, notes).get(WAIT)
    running = sleeper.endpoint(how).call()
    begun(notes, 2)
    behind = sleeper.ready.call()
    assert sleeper.stop(grace=0.1).get(0) is None
    with pytest.raises(MeshStopped) as ended:
        running.get(WAIT)
    assert ended.value.may_have_run
    with pytest.raises(MeshStopped) as not_begun:
        behind.get(WAIT)
    assert not not_begun.value.may_have_run
    assert notes.read_text().count("cleaned up: None") == 2
    assert mesh.spawn("sleeper", cls, notes).ready.call().get(WAIT).values() == ["ready", "ready"]


def test_what_ends_within_the_grace_is_not_cut_off(tmp_path: Path) -> None:
    sleeper = proc_mesh(n=1).spawn("sleeper", AsyncSleeper, tmp_path / "notes").get(WAIT)
    slept, ready = sleeper.beside.call_one(0.2), sleeper.ready.call_one()
    sleeper.stop(grace=LONG)
    assert (slept.get(WAIT), ready.get(WAIT)) == ("slept", "ready")


def test_concurrent_calls_are_cancelled_at_the_end_of_the_grace(tmp_path: Path) -> None:
    sleeper = proc_mesh(n=1).spawn("sleeper", AsyncSleeper, tmp_path / "notes").get(WAIT)
    running = [sleeper.beside.call_one(LONG) for _ in range(3)]
    begun(tmp_path / "notes", 3)
    sleeper.stop(grace=0.1)
    for call in running:
        assert isinstance(call.exception(WAIT), MeshStopped)


def test_a_call_that_waits_for_another_actor_is_ended(tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    notes = tmp_path / "notes"
    sleeper = mesh.spawn("sleeper", Sleeper, notes).get(WAIT)
    waits = sleeper.slice(n=0).wait_for.call_one(sleeper.slice(n=1))
    begun(notes, 2)
    sleeper.slice(n=0).stop(grace=0)
    assert isinstance(waits.exception(WAIT), MeshStopped)
    sleeper.slice(n=1).stop(grace=0)


def test_an_init_that_hangs_is_ended(tmp_path: Path) -> None:
    mesh = proc_mesh(n=1)
    sleeper = mesh.spawn("sleeper", Sleeper, tmp_path / "notes", seconds=LONG)
    begun(tmp_path / "notes", what="begins")
    call = sleeper.ready.call_one()
    sleeper.stop(grace=0)
    assert isinstance(sleeper.initialized.exception(WAIT), MeshStopped)
    assert isinstance(call.exception(WAIT), MeshStopped)
    assert mesh.spawn("sleeper", Sleeper, tmp_path / "notes").ready.call_one().get(WAIT) == "ready"


def test_a_call_that_catches_the_interrupt_ends_as_it_likes(tmp_path: Path) -> None:
    sleeper = proc_mesh(n=1).spawn("sleeper", Sleeper, tmp_path / "notes").get(WAIT)
    call = sleeper.catch.call_one()
    begun(tmp_path / "notes")
    sleeper.stop(grace=0)
    assert call.get(WAIT) == "ended by itself"


def test_what_cannot_be_interrupted_is_named(tmp_path: Path) -> None:
    """It does not run on the main thread. The grace is over at once, and the actor has five seconds to end."""
    mesh = proc_mesh(n=2)
    mesh.spawn("first", Sleeper, tmp_path / "first")
    sleeper = mesh.spawn("sleeper", Sleeper, tmp_path / "notes").get(WAIT)
    held = sleeper.slice(n=1).until_let_go.call_one(tmp_path / "let go")
    begun(tmp_path / "notes")
    with pytest.raises(CallTimeout, match=r"sleeper\.stop\(\): no answer within 5 s from 1 of 2 \(rank 1 ") as late:
        sleeper.stop(grace=0)
    assert "mesh.stop()" in late.value.__notes__[0] and "you can wait again" not in str(late.value)
    (tmp_path / "let go").touch()
    assert held.get(WAIT) is None
    with pytest.raises(MeshStopped):
        sleeper.ready.call().get(WAIT)


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf")])
def test_a_grace_that_is_none_is_refused(grace: float, tmp_path: Path) -> None:
    mesh = proc_mesh(n=1)
    sleeper = mesh.spawn("sleeper", Sleeper, tmp_path / "notes")
    with pytest.raises(UsageError, match=r"grace=.*: expected a finite number of seconds, 0 or more"):
        sleeper.stop(grace=grace)
    for end in (mesh.stop, this_host().stop, shutdown_context):
        with pytest.raises(UsageError, match=r"grace=.*: expected a finite number of seconds, 0 or more"):
            end(grace=grace)
    assert sleeper.ready.call_one().get(WAIT) == "ready"

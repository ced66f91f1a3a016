"""An actor ends itself; and what an actor has made ends with it."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt import (
    Actor,
    ActorAborted,
    CallCancelled,
    MeshFailure,
    MeshStopped,
    Port,
    ProcMesh,
    concurrent_endpoint,
    context,
    endpoint,
    proc_mesh,
)
from tests.functional.test_supervision import Owner, ends, next_wait
from tests.support.actors import Echo
from tests.support.screen import Screen
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 20


class EndsAtOnce(Actor):
    def __init__(self) -> None:
        context().actor_instance.stop("nothing to do")

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Aborting:
    """Its pickle is never made."""

    def __reduce__(self) -> tuple[object, ...]:
        context().actor_instance.abort("corrupt state")


class CannotGoOn(BaseException):
    """Not to be caught by ``except Exception``."""


class Ending(Actor):
    def __init__(self, folder: str = "") -> None:
        self.folder = folder

    @endpoint
    def abort(self, gate: str = "") -> None:
        if gate:
            Path(f"{gate}.begun").touch()
        wait_until(lambda: not gate or os.path.exists(gate), WAIT)
        context().actor_instance.abort("corrupt state")

    @endpoint
    def abort_for(self, reason: object) -> None:
        context().actor_instance.abort(reason)

    @endpoint(explicit_response_port=True)
    def answer_and_abort(self, port: Port[str]) -> None:
        port.send("answered")
        context().actor_instance.abort("corrupt state")

    @endpoint
    def raise_own(self) -> None:
        raise CannotGoOn("corrupt state")

    @endpoint
    def abort_in_a_thread(self) -> None:
        thread = threading.Thread(target=context().actor_instance.abort, args=("corrupt state",))
        thread.start()
        thread.join()

    @endpoint
    def abort_in_a_pickle(self) -> object:
        return Aborting()

    @endpoint
    def end(self) -> None:
        context().actor_instance.stop("done")

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    def __cleanup__(self, exc: object) -> None:
        if self.folder:
            (Path(self.folder) / "cleaned").write_text(str(exc))


class AsyncEnding(Ending):
    @endpoint
    async def wait(self) -> None:
        await asyncio.Event().wait()

    @concurrent_endpoint
    async def wait_beside(self) -> None:
        await asyncio.Event().wait()

    @concurrent_endpoint
    async def abort_beside(self) -> None:
        await asyncio.sleep(0)
        context().actor_instance.abort("corrupt state")

    @endpoint
    async def raise_own_async(self) -> None:
        raise CannotGoOn("corrupt state")

    @concurrent_endpoint
    async def raise_own_beside(self) -> None:
        raise CannotGoOn("corrupt state")

    @endpoint
    async def abort_in_a_task(self) -> None:
        async def task() -> None:
            context().actor_instance.abort("corrupt state")

        self.task = asyncio.create_task(task())


class Maker(Actor):
    """Makes things of each kind, and another maker."""

    @endpoint
    def make(self, elsewhere: ProcMesh) -> list[int]:
        own = proc_mesh(n=1, name="own")
        self.there = elsewhere.spawn("there", Ending)
        self.echo = own.spawn("echo", Echo)
        return [self.echo.pid.call_one().get(WAIT), self.there.pid.call_one().get(WAIT)]

    @endpoint
    def make_maker(self, mesh: ProcMesh, elsewhere: ProcMesh) -> list[int]:
        self.maker = mesh.spawn("below", Maker)
        pids: list[int] = self.maker.make.call_one(elsewhere).get(WAIT)
        return pids

    @endpoint
    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def actors_on(mesh: ProcMesh) -> set[str]:
    """Return the actors that the root knows of."""
    from meshrt.mesh.program import start_root

    return set(start_root().registry.meshes[mesh.mesh_id].running_actors())


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["abort", "abort_beside", "abort_in_a_task"])
def test_the_report_says_where_it_has_aborted(endpoint: str, tmp_path: Path) -> None:
    code, err = ends(
        tmp_path,
        "from tests.functional.test_self_end import AsyncEnding",
        "mesh = proc_mesh(n=1, name='train')",
        "other = proc_mesh(n=1).spawn('other', Echo)",
        f"mesh.spawn('job', AsyncEnding).{endpoint}.broadcast()",
        "while True: other.echo.call_one(1).get(20)",
    )
    assert code == 1
    assert "what     meshrt.errors.ActorAborted: corrupt state" in err
    assert f"where    {'a task or a thread' if endpoint == 'abort_in_a_task' else f'job.{endpoint}()'}" in err
    assert 'context().actor_instance.abort("corrupt state")' in err.partition("stack ")[2]


@pytest.mark.parametrize("endpoint", ["abort_in_a_thread", "abort_in_a_pickle"])
def test_an_actor_has_aborted_wherever_that_was_raised(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: queue.SimpleQueue[MeshFailure] = queue.SimpleQueue()
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.put)
    job = proc_mesh(n=1).spawn("job", Ending)
    assert not isinstance(getattr(job, endpoint).call_one().exception(WAIT), ActorAborted)
    told = failures.get(timeout=WAIT).error
    later = job.pid.call_one().exception(WAIT)
    for error in told, later:
        assert isinstance(error, ActorAborted) and error.reason == "corrupt state"
    assert failures.empty()


def test_concurrent_calls_beside_an_abort_are_told_of_it() -> None:
    job = proc_mesh(n=1).spawn("job", AsyncEnding)
    waiting = job.wait_beside.call_one()
    assert isinstance(job.abort_beside.call_one().exception(WAIT), ActorAborted)
    error = waiting.exception(WAIT)
    assert isinstance(error, ActorAborted) and error.reason == "corrupt state"


def test_a_call_that_was_cancelled_beside_an_abort_stays_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: queue.SimpleQueue[MeshFailure] = queue.SimpleQueue()
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.put)
    job = proc_mesh(n=1).spawn("job", Ending).get(WAIT)
    aborting = job.abort.call_one(str(tmp_path / "gate"))
    behind = job.pid.call_one()
    dropped = job.pid.call_one()
    wait_until((tmp_path / "gate.begun").exists, WAIT)
    assert aborting.cancel() and dropped.cancel()
    (tmp_path / "gate").touch()
    # An owner that reads the error of the call behind it has been told, too: before that the hook is called.
    assert "corrupt state" in str(failures.get(timeout=WAIT).error)
    assert isinstance(behind.exception(WAIT), ActorAborted)
    assert isinstance(aborting.exception(0), CallCancelled) and isinstance(dropped.exception(0), CallCancelled)


@pytest.mark.parametrize("cls", [Ending, AsyncEnding])
def test_an_actor_aborts_and_its_neighbour_lives_on(
    cls: type[Ending], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: queue.SimpleQueue[MeshFailure] = queue.SimpleQueue()
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.put)
    err = Screen.instead_of("stderr", monkeypatch)
    mesh = proc_mesh(n=1, name="train")
    echo = mesh.spawn("echo", Echo)
    pid = echo.pid.call_one().get(WAIT)
    actor = mesh.spawn("worker", cls, str(tmp_path)).get(WAIT)
    running = actor.abort.call_one(str(tmp_path / "gate"))
    waiting = actor.pid.call_one()
    (tmp_path / "gate").touch()
    first, second = running.exception(WAIT), waiting.exception(WAIT)
    third = actor.pid.call_one().exception(WAIT)
    for error, ran in ((first, True), (second, False), (third, False)):
        assert isinstance(error, ActorAborted) and error.reason == "corrupt state" and error.may_have_run == ran
    assert str(first).startswith("worker.abort() failed: rank 0 (n=0) on ")
    assert str(first).endswith(" has aborted: corrupt state (the call may have run)")
    assert (tmp_path / "cleaned").read_text() == "the actor has aborted: corrupt state"
    assert echo.pid.call_one().get(WAIT) == pid
    again = mesh.spawn("worker", cls)
    assert again.pid.call_one().get(WAIT) == pid
    assert failures.empty()  # the script was told by its calls
    again.abort.broadcast()
    failure = failures.get(timeout=WAIT)
    assert isinstance(failure.error, ActorAborted) and failure.error.reason == "corrupt state"
    assert "worker rank 0 (n=0) on " in err.wait_for("has aborted: corrupt state")


@pytest.mark.parametrize("name", ["raise_own", "raise_own_async", "raise_own_beside"])
def test_an_exception_that_is_no_exception_of_a_call_ends_its_actor(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: queue.SimpleQueue[MeshFailure] = queue.SimpleQueue()
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.put)
    mesh = proc_mesh(n=1, name="train")
    cls = Ending if name == "raise_own" else AsyncEnding
    pid = mesh.spawn("echo", Echo).pid.call_one().get(WAIT)
    worker = mesh.spawn("worker", cls, str(tmp_path))
    reason = f"{name}() raised tests.functional.test_self_end.CannotGoOn: corrupt state"
    for call in (getattr(worker, name), worker.pid):
        error = call.call_one().exception(WAIT)
        assert isinstance(error, ActorAborted) and error.reason == reason
    assert (tmp_path / "cleaned").read_text() == f"the actor has aborted: {reason}"
    again = mesh.spawn("worker", cls)
    assert again.pid.call_one().get(WAIT) == pid
    assert failures.empty()  # the script was told by its calls
    getattr(again, name).broadcast()
    failure = failures.get(timeout=WAIT)
    assert isinstance(failure.error, ActorAborted) and failure.error.reason == reason
    assert str(failure).startswith("MeshFailure of train: worker rank 0 (n=0) on ")


def test_the_report_shows_what_has_ended_an_actor(tmp_path: Path) -> None:
    code, err = ends(
        tmp_path,
        "from tests.functional.test_self_end import Ending",
        "proc_mesh(n=1, name='train').spawn('job', Ending).raise_own.call_one().get(20)",
    )
    assert code == 1
    assert (
        "what     tests.functional.test_self_end.CannotGoOn: corrupt state" in err and "where    job.raise_own()" in err
    )


@pytest.mark.parametrize("name", ["abort_beside", "abort_in_a_task"])
def test_a_task_aborts(name: str) -> None:
    actor = proc_mesh(n=1).spawn("worker", AsyncEnding).get(WAIT)
    getattr(actor, name).call_one().exception(WAIT)
    wait_until(lambda: isinstance(actor.pid.call_one().exception(WAIT), ActorAborted), WAIT)


def test_a_script_that_was_not_told_by_a_call_is_told_at_its_next_wait() -> None:
    actor = proc_mesh(n=1, name="train").spawn("worker", Ending).get(WAIT)
    other = proc_mesh(n=1).spawn("other", Owner, "").get(WAIT)
    actor.abort.broadcast()
    assert isinstance(next_wait(other), ActorAborted)


def test_an_actor_stops_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", pytest.fail)
    mesh = proc_mesh(n=1)
    actor = mesh.spawn("worker", Ending, str(tmp_path)).get(WAIT)
    ended = actor.end.call_one().exception(WAIT)
    wait_until(lambda: actor.pid.call_one().exception(WAIT) is not None, WAIT)  # one that has come by then is served
    for error in (ended, actor.pid.call_one().exception(WAIT)):
        assert isinstance(error, MeshStopped) and error.reason == "done"
        assert "has stopped itself: done" in str(error)
    assert (tmp_path / "cleaned").read_text() == "None"


def test_a_call_that_comes_while_an_actor_stops_itself_in_its_init_is_told_so() -> None:
    mesh = proc_mesh(n=1)
    for number in range(10):
        actor = mesh.spawn(f"refuses{number}", EndsAtOnce)
        for _ in range(2):
            with pytest.raises(MeshStopped, match="has stopped itself: nothing to do"):
                actor.pid.call().get(WAIT)


def test_what_a_stopped_actor_has_made_has_ended_when_its_stop_returns() -> None:
    top, middle, elsewhere = (proc_mesh(n=1) for _ in range(3))
    maker = top.spawn("maker", Maker).get(WAIT)
    made, host = maker.make_maker.call_one(middle, elsewhere).get(WAIT)
    wait_until(lambda: actors_on(elsewhere) == {"there"} and actors_on(middle) == {"below"}, WAIT)
    maker.stop()
    assert not os.path.exists(f"/proc/{made}") and os.path.exists(f"/proc/{host}")
    assert actors_on(elsewhere) == actors_on(middle) == set()


def test_what_an_actor_has_spawned_elsewhere_ends_with_its_process() -> None:
    elsewhere = proc_mesh(n=1)
    maker: Any = proc_mesh(n=1).spawn("maker", Maker).get(WAIT)
    maker.make.call_one(elsewhere).get(WAIT)
    maker.kill.call_one().exception(WAIT)
    wait_until(lambda: actors_on(elsewhere) == set(), WAIT)


@pytest.mark.parametrize(("reason", "text"), [(None, ""), (LookupError("no data"), "LookupError: no data")])
def test_the_reason_may_be_an_exception_or_none(reason: object, text: str) -> None:
    mesh = proc_mesh(n=1)
    pid = mesh.spawn("echo", Echo).pid.call_one().get(WAIT)
    error = mesh.spawn("worker", Ending).abort_for.call_one(reason).exception(WAIT)
    assert isinstance(error, ActorAborted) and error.reason == text
    assert mesh.spawn("worker", Ending).pid.call_one().get(WAIT) == pid


def test_one_that_aborts_behind_its_answer_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: queue.SimpleQueue[MeshFailure] = queue.SimpleQueue()
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.put)
    worker = proc_mesh(n=1).spawn("worker", Ending)
    assert worker.answer_and_abort.call_one().get(WAIT) == "answered"
    failure = failures.get(timeout=WAIT)
    assert isinstance(failure.error, ActorAborted) and failure.error.reason == "corrupt state"

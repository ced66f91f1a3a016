"""``stop`` under fire: from several threads, with calls pending, with actors that do not want to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt import (
    Actor,
    ActorError,
    CallTimeout,
    LocalEngine,
    MeshStopped,
    ProcessDied,
    ShutdownError,
    SpawnError,
    SupervisionError,
    endpoint,
    proc_mesh,
)
from tests.faults.actors import AsyncVictim, Victim
from tests.faults.watch import LONG, agents_with, all_gone, is_alive
from tests.support.waiting import wait_until

#: Seconds beyond the grace: one is meant; the machine is loaded.
BEYOND = 4.0


class Stubborn(Actor):
    """Does not want to end: its ``__cleanup__`` hangs, raises or exits, and its endpoint swallows interrupts."""

    def __init__(self, how: str) -> None:
        self.how = how

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def swallow(self, note: str) -> None:
        Path(note).touch()
        while True:
            try:
                time.sleep(60)
            except BaseException:  # that is its character
                pass

    def __cleanup__(self, error: BaseException | None) -> None:
        if self.how == "hang":
            time.sleep(600)
        elif self.how == "raise":
            raise ValueError("no cleanup")
        elif self.how == "exit":
            os._exit(3)
        elif self.how == "sys.exit":
            raise SystemExit(4)
        elif self.how == "ignore":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)


@pytest.mark.slow
@pytest.mark.row("X4")
@pytest.mark.parametrize("how", ["hang", "raise", "exit", "sys.exit", "ignore"])
def test_a_cleanup_that_misbehaves(how: str) -> None:
    mesh = proc_mesh(n=2)
    pids = mesh.spawn("stubborn", Stubborn, how).pid.call().get(LONG).values()
    begin = time.monotonic()
    mesh.stop(0.5)
    assert time.monotonic() - begin < 0.5 + BEYOND
    all_gone(pids, 1)


@pytest.mark.parametrize("grace", [0.0, 0.3])
def test_an_endpoint_that_swallows_interrupts(grace: float, tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    stubborn = mesh.spawn("stubborn", Stubborn, "").get(LONG)
    pids = stubborn.pid.call().get(LONG).values()
    call = stubborn.slice(n=0).swallow.call_one(str(tmp_path / "inside"))
    wait_until((tmp_path / "inside").exists, LONG)
    begin = time.monotonic()
    mesh.stop(grace)
    assert time.monotonic() - begin < grace + BEYOND
    all_gone(pids, 1)
    assert isinstance(call.exception(LONG), MeshStopped)


@pytest.mark.slow
@pytest.mark.parametrize("actor", [Victim, AsyncVictim])
@pytest.mark.parametrize("grace", [0.0, 0.3])
def test_each_pending_call_gets_an_error_or_its_value(actor: type[Victim], grace: float, tmp_path: Path) -> None:
    mesh = proc_mesh(n=3, engine=LocalEngine(2))
    victims = mesh.spawn("victim", actor).get(LONG)
    if actor is Victim:
        running = victims.wait_for.call(str(tmp_path / "gate"), str(tmp_path / "inside"))
        wait_until(lambda: len(list(tmp_path.iterdir())) == 3, LONG)
    else:
        running = victims.die.call("", (99,), str(tmp_path / "gate"))
    waiting = [victims.pid.call() for _ in range(50)]
    streamed = list(victims.pid.stream())
    called: list[BaseException | None] = []
    waiting[7].add_done_callback(lambda future: called.append(future.exception(0)))
    mesh.stop(grace)
    for future in (running, *waiting, *streamed):
        error = future.exception(1)
        assert error is None or isinstance(error, SupervisionError), error
        assert not isinstance(error, CallTimeout | ActorError)
    assert isinstance(running.exception(1), MeshStopped)
    assert running.exception(1).may_have_run  # type: ignore[union-attr]
    wait_until(lambda: called, LONG)


@pytest.mark.row("X4")
def test_from_many_threads_at_once() -> None:
    mesh = proc_mesh(n=4, engine=LocalEngine(2))
    victims = mesh.spawn("victim", Victim).get(LONG)
    pids = victims.pid.call().get(LONG).values()
    stop = threading.Event()

    def call() -> int:
        count = 0
        while not stop.is_set():
            error = victims.echo.call(count).exception(LONG)
            assert error is None or isinstance(error, SupervisionError), error
            count += 1
            if error is not None:
                return count
        return count

    with ThreadPoolExecutor(12) as pool:
        callers = [pool.submit(call) for _ in range(6)]
        wait_until(lambda: victims.echo.call(1).get(LONG), LONG)
        stoppers = [pool.submit(mesh.stop, grace) for grace in (5.0, 1.0, 0.0, 5.0, 0.0)]
        assert [stopper.result(LONG).get(LONG) for stopper in stoppers] == [None] * 5
        try:
            assert all(caller.result(LONG) for caller in callers)
        finally:
            stop.set()
    all_gone(pids, 1)


def test_while_the_ranks_start() -> None:
    for grace, count in ((0.0, 8), (5.0, 8), (0.0, 64)):
        mesh = proc_mesh(n=count)
        victims = mesh.spawn("victim", Victim)
        mesh.stop(grace)
        assert isinstance(victims.initialized.exception(LONG), MeshStopped | None)
        assert isinstance(mesh.initialized.exception(LONG), MeshStopped | None)


@pytest.mark.parametrize("grace", [0.0, 0.3])
def test_while_a_module_is_preloaded(grace: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import hangs: nothing but the end of its process helps."""
    (tmp_path / "hanging_preload.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    meshrt.shutdown_context()  # a new agent knows the new path
    mesh = proc_mesh(n=2, preload=["hanging_preload"])
    victims = mesh.spawn("victim", Victim)
    begin = time.monotonic()
    mesh.stop(grace)
    assert time.monotonic() - begin < grace + BEYOND
    assert isinstance(mesh.initialized.exception(1), MeshStopped | SpawnError)
    assert isinstance(victims.initialized.exception(1), MeshStopped | SpawnError)


def test_after_the_program_has_ended() -> None:
    mesh = proc_mesh(n=1)
    victims = mesh.spawn("victim", Victim).get(LONG)
    pending = victims.wait_for.call("/nowhere/gate")
    meshrt.shutdown_context(0.0)
    meshrt.shutdown_context()
    assert isinstance(pending.exception(1), MeshStopped)
    assert mesh.stop().get(1) is None
    with pytest.raises(ShutdownError):
        victims.pid.call()


def send(numbers: list[signal.Signals], pids: list[int]) -> None:
    for number in numbers:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.mark.slow
@pytest.mark.row("X4")
@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGKILL], [signal.SIGSTOP, signal.SIGKILL], [signal.SIGTERM], [signal.SIGTERM, signal.SIGKILL]],
    ids=lambda numbers: "-".join(number.name for number in numbers),
)
def test_while_all_ranks_die(numbers: list[signal.Signals]) -> None:
    """Whatever comes first, stop() ends, and only those errors come that tell of one or the other."""
    for _ in range(5):
        mesh = proc_mesh(n=4, engine=LocalEngine(2))
        victims = mesh.spawn("victim", Victim).get(LONG)
        pids = victims.pid.call().get(LONG).values()
        calls = [victims.echo.call(index) for index in range(20)]
        killer = threading.Thread(target=send, args=(numbers, pids))
        killer.start()
        mesh.stop(1.0)
        killer.join(LONG)
        for call in calls:
            assert isinstance(call.exception(1), ProcessDied | MeshStopped | None)
        all_gone(pids, 1)


# ---- what runs when the grace ends


class Lingering(Actor):
    """Waits for ever in an endpoint, and notes in a folder what of it was run at its end."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.tasks: list[asyncio.Task[None]] = []

    def note(self, text: str) -> None:
        (self.folder / f"{text}-{meshrt.context().actor_instance.name}").touch()

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def block(self) -> None:
        try:
            self.note("inside")  # from here on it can be interrupted
            time.sleep(600)
        finally:
            self.note("finally")

    @endpoint
    async def wait(self) -> None:
        try:
            self.note("inside")  # from here on it can be interrupted
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.note("finally")

    @endpoint
    async def swallow(self) -> None:
        self.note("inside")
        while True:
            try:
                await asyncio.Event().wait()
            except BaseException:  # that is its character
                self.note("finally")

    @endpoint
    async def wait_beside_a_task_that_blocks(self) -> None:
        async def block() -> None:
            self.note("inside")
            time.sleep(600)  # noqa: ASYNC251 - as one must not

        self.tasks.append(asyncio.create_task(block()))
        try:
            await asyncio.Event().wait()
        finally:
            self.note("finally")

    @endpoint
    async def start_task(self) -> None:
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0.001)
                self.note("task")

        self.tasks.append(asyncio.create_task(work()))
        await asyncio.sleep(0)

    def __cleanup__(self, error: BaseException | None) -> None:
        self.note("cleanup")


class AsyncCleanup(Lingering):
    async def __cleanup__(self, error: BaseException | None) -> None:  # type: ignore[override]  # both are allowed
        await asyncio.sleep(0)
        self.note("cleanup")


class Plain(Actor):
    """Nothing async but its ``__cleanup__``."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    @endpoint
    def block(self) -> None:
        (self.folder / "inside-plain").touch()
        try:
            time.sleep(600)
        finally:
            (self.folder / "finally-plain").touch()

    async def __cleanup__(self, error: BaseException | None) -> None:
        await asyncio.sleep(0)
        (self.folder / "cleanup-plain").touch()


@pytest.fixture
def patient(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is interrupted is not killed: a loaded machine may take its time for what is run then."""
    monkeypatch.setattr("meshrt.mesh.stopping._OVERDUE", 60.0)
    agents_with("agent._KILL_AFTER = 30.0", tmp_path_factory.mktemp("agent"), monkeypatch)


def noted(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("grace", [0.0, 0.3])
@pytest.mark.parametrize("cls", [Lingering, AsyncCleanup])
@pytest.mark.parametrize("name", ["block", "wait", "wait_beside_a_task_that_blocks"])
def test_what_an_endpoint_has_to_do_at_its_end_is_done(
    cls: type[Lingering], name: str, grace: float, tmp_path: Path
) -> None:
    """The call that runs is ended, the ones behind it are not begun, and the actor cleans up."""
    mesh = proc_mesh(n=1)
    actor: Any = mesh.spawn("a", cls, str(tmp_path)).get(LONG)
    calls = [getattr(actor, name).call_one() for _ in range(3)]
    wait_until((tmp_path / "inside-a").exists, LONG)
    mesh.stop(grace)
    for call in calls:
        assert isinstance(call.exception(LONG), MeshStopped)
    assert noted(tmp_path) == {"inside-a", "finally-a", "cleanup-a"}


@pytest.mark.usefixtures("patient")
def test_a_call_that_waits_on_a_thread_of_its_own_is_ended_too(tmp_path: Path) -> None:
    mesh = proc_mesh(n=1)
    pids = mesh.spawn("first", Victim).pid.call().get(LONG).values()
    call = mesh.spawn("b", Lingering, str(tmp_path)).wait.call_one()
    wait_until((tmp_path / "inside-b").exists, LONG)
    mesh.stop(0.1)
    assert isinstance(call.exception(LONG), MeshStopped)
    assert noted(tmp_path) == {"inside-b", "finally-b", "cleanup-b"}
    all_gone(pids, 1)


@pytest.mark.usefixtures("patient")
def test_a_sync_actor_cleans_up_in_a_loop_of_its_own(tmp_path: Path) -> None:
    mesh = proc_mesh(n=1)
    call = mesh.spawn("plain", Plain, str(tmp_path)).block.call_one()
    wait_until((tmp_path / "inside-plain").exists, LONG)
    mesh.stop(0.0)
    assert isinstance(call.exception(LONG), MeshStopped)
    assert noted(tmp_path) == {"inside-plain", "finally-plain", "cleanup-plain"}


@pytest.mark.slow
@pytest.mark.parametrize("grace", [0.0, 0.3])
@pytest.mark.parametrize("first", [True, False])
def test_an_async_endpoint_that_swallows_cancellation(first: bool, grace: float, tmp_path: Path) -> None:
    mesh = proc_mesh(n=1)
    if not first:
        mesh.spawn("first", Victim).get(LONG)
    actor = mesh.spawn("a", Lingering, str(tmp_path))
    pids = actor.pid.call().get(LONG).values()
    call = actor.swallow.call_one()
    wait_until((tmp_path / "inside-a").exists, LONG)
    begin = time.monotonic()
    mesh.stop(grace)
    assert time.monotonic() - begin < grace + BEYOND
    all_gone(pids, 1)
    assert isinstance(call.exception(LONG), MeshStopped)
    assert noted(tmp_path) == {"inside-a", "finally-a"}


def test_the_tasks_of_a_stopped_actor_end_before_stop_does(tmp_path: Path) -> None:
    """The process lives on: what they have to do is not cut off with their loop."""
    mesh = proc_mesh(n=1)
    actor = mesh.spawn("a", Lingering, str(tmp_path))
    actor.start_task.call_one().get(LONG)
    actor.stop()
    assert noted(tmp_path) == {"cleanup-a", "task-a"}


# ---- SIGTERM from outside, to one rank


def set_grace(seconds: float, kill_after: float) -> None:
    """In a rank: how long it waits for what runs, and for what it has interrupted."""
    from meshrt.actor import process

    process.GRACE = seconds
    process._KILL_AFTER = kill_after


def on_a_thread(actor: type[Any], folder: Path, grace: float, kill_after: float = 60.0) -> Any:
    """Return an actor on a thread of its own, on a rank that has that grace."""
    mesh = proc_mesh(n=2)
    mesh.spawn("grace", Victim).apply.call(set_grace, grace, kill_after).get(LONG)
    return mesh.slice(n=0).spawn("a", actor, str(folder)).get(LONG)


def on_the_main_thread(actor: type[Any], folder: Path, grace: float, kill_after: float = 60.0) -> Any:
    """The same on the main thread, the only one that a signal reaches."""
    mesh = proc_mesh(n=2)
    found = mesh.slice(n=0).spawn("a", actor, str(folder)).get(LONG)
    mesh.spawn("grace", Victim).apply.call(set_grace, grace, kill_after).get(LONG)
    return found


@pytest.mark.slow
@pytest.mark.row("P17")
@pytest.mark.parametrize(
    ("name", "where"),
    [("block", on_the_main_thread), ("wait", on_the_main_thread), ("wait", on_a_thread)],
    ids=["block", "wait", "wait on a thread"],
)
def test_sigterm_ends_a_rank_whose_call_hangs_after_the_grace(name: str, where: Any, tmp_path: Path) -> None:
    actor = where(Lingering, tmp_path, 0.2)
    pid = actor.pid.call_one().get(LONG)
    call = getattr(actor, name).call_one()
    wait_until((tmp_path / "inside-a").exists, LONG)
    os.kill(pid, signal.SIGTERM)
    error = call.exception(LONG)
    assert isinstance(error, ProcessDied) and error.signal == signal.SIGTERM and error.may_have_run
    assert noted(tmp_path) == {"inside-a", "finally-a", "cleanup-a"}


@pytest.mark.row("P17")
@pytest.mark.parametrize("name", ["swallow", "block"])
def test_sigterm_ends_a_rank_that_cannot_be_interrupted(name: str, tmp_path: Path) -> None:
    """One that swallows it, and one on a thread that no signal reaches."""
    actor = on_a_thread(Lingering, tmp_path, 0.1, 0.1)
    pid = actor.pid.call_one().get(LONG)
    call = getattr(actor, name).call_one()
    wait_until((tmp_path / "inside-a").exists, LONG)
    os.kill(pid, signal.SIGTERM)
    error = call.exception(LONG)
    assert isinstance(error, ProcessDied) and error.signal == signal.SIGKILL
    assert "it did not end within 0.1 s after SIGTERM" in str(error)


def test_a_second_sigterm_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    actor = on_the_main_thread(Lingering, tmp_path, 600.0)
    pid = actor.pid.call_one().get(LONG)
    call = actor.wait.call_one()
    wait_until((tmp_path / "inside-a").exists, LONG)
    os.kill(pid, signal.SIGTERM)
    assert call.exception(0.3) is not None and not call.done()
    assert is_alive(pid) and noted(tmp_path) == {"inside-a"}
    os.kill(pid, signal.SIGTERM)
    error = call.exception(LONG)
    assert isinstance(error, ProcessDied) and error.signal == signal.SIGTERM
    assert noted(tmp_path) == {"inside-a", "finally-a", "cleanup-a"}


@pytest.mark.row("P17", "X4")
def test_sigterm_and_stop_at_once(tmp_path: Path) -> None:
    for grace in (0.0, 0.2):
        mesh = proc_mesh(n=2)
        actor = mesh.spawn("a", Lingering, str(tmp_path))
        pids = actor.pid.call().get(LONG).values()
        call = actor.wait.call()
        wait_until((tmp_path / "inside-a").exists, LONG)
        stopping = threading.Thread(target=mesh.stop, args=(grace,))
        stopping.start()
        send([signal.SIGTERM], pids)
        stopping.join(LONG)
        all_gone(pids, 1)
        assert isinstance(call.exception(LONG), MeshStopped | ProcessDied)

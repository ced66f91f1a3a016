"""``stop`` under fire: from several threads, with calls pending, with actors that do not want to end. G7, X4."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import meshrt
from meshrt import (
    Actor,
    ActorError,
    CallTimeout,
    LocalEngine,
    MeshStopped,
    ProcessDied,
    SpawnError,
    SupervisionError,
    UsageError,
    endpoint,
    proc_mesh,
)
from tests.faults.actors import AsyncVictim, Victim
from tests.faults.watch import LONG, all_gone
from tests.support.waiting import wait_until

#: Seconds beyond the grace: G7 says one; the machine is loaded.
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
    for grace in (0.0, 5.0):
        mesh = proc_mesh(n=8)
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
    for late in (mesh.stop, victims.pid.call):
        with pytest.raises((UsageError, SupervisionError)):
            late().get(1)


def send(numbers: list[signal.Signals], pids: list[int]) -> None:
    for number in numbers:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGKILL], [signal.SIGSTOP, signal.SIGKILL], [signal.SIGTERM], [signal.SIGTERM, signal.SIGKILL]],
    ids=lambda numbers: "-".join(number.name for number in numbers),
)
def test_while_all_ranks_die(numbers: list[signal.Signals]) -> None:
    """X4: whatever comes first, stop() ends, and only those errors come that tell of one or the other."""
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

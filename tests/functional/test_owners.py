"""Who is asked about a failure: who has spawned the actor; and when the script is told."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt import Actor, ActorError, MeshFailure, ProcessDied, ProcMesh, endpoint, proc_mesh
from tests.functional.test_supervision import Owner, asked_about, ends, lines, next_wait
from tests.support.actors import Echo
from tests.support.screen import Screen
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 20


class Breaks(Actor):
    def __init__(self) -> None:
        raise ValueError("no device")


#: A script whose actor says that it begins to fail.
FAILS = (
    "import pathlib, queue",
    "from tests.support.waiting import wait_until",
    "begun = pathlib.Path(__file__).with_suffix('.begun')",
    "class Fails(Actor):",
    "    def __init__(self, waits=False):",
    "        begun.touch()",
    "        try:",
    "            while waits: wait_until(lambda: False, 60)",
    "        finally:",
    "            raise ValueError('no device')",
    "mesh = proc_mesh(n=1)",
)


class PlainSpawner(Actor):
    @endpoint
    def spawn_breaking(self, mesh: ProcMesh, catch: bool) -> None:
        broken = mesh.spawn("broken", Breaks)
        if catch:
            try:
                broken.get(WAIT)
            except ValueError:
                return
            raise AssertionError("it was built")


class Spawner(PlainSpawner, Owner):
    """Spawns on processes that were made elsewhere."""

    @endpoint
    def spawn_on(self, mesh: ProcMesh) -> list[int]:
        self.workers = mesh.spawn("worker", Echo)
        return self.workers.pid.call().get(WAIT).values()


class Catcher(Actor):
    """Calls ranks that are gone, and goes on."""

    @endpoint
    def call(self, others: Any) -> str:
        try:
            others.pid.call().get(WAIT)
        except ProcessDied as error:
            return type(error).__name__
        return "lives"


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[queue.SimpleQueue[MeshFailure]]:
    """What the hook of the script was called with."""
    failures: queue.SimpleQueue[MeshFailure] = queue.SimpleQueue()
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.put)
    yield failures
    assert failures.empty()


def spawner(tmp_path: Path, answer: str) -> tuple[Any, ProcMesh, Path]:
    """An actor, and processes that the script has made, for it."""
    seen = tmp_path / "seen"
    actor = proc_mesh(n=1, name="outer").spawn("spawner", Spawner, answer, str(seen))
    return actor, proc_mesh(n=2, name="ours"), seen


def test_who_has_spawned_an_actor_is_asked_though_others_have_made_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    actor, mesh, seen = spawner(tmp_path, "handle")
    pids = actor.spawn_on.call_one(mesh).get(WAIT)
    actor.broadcast_a_failure.call_one().get(WAIT)
    wait_until(lambda: asked_about(str(seen)) == {0, 1}, WAIT)
    os.kill(pids[1], signal.SIGKILL)
    wait_until(lambda: lines(seen)[-1:] == ["ours (1,) ProcessDied"], WAIT)
    err.wait_for("a failure of ours: handled by spawner.__supervise__()")


def test_a_failed_init_reaches_its_owner_without_a_call(tmp_path: Path, hooked: queue.SimpleQueue[MeshFailure]) -> None:
    actor, mesh, seen = spawner(tmp_path, "handle")
    actor.spawn_breaking.call_one(mesh, False).get(WAIT)
    wait_until(lambda: asked_about(str(seen)) == {0, 1}, WAIT)  # in one failure, or one each
    mesh.spawn("broken", Breaks)  # the owner is the script now
    told: set[int] = set()
    while told != {0, 1}:
        failure = hooked.get(timeout=WAIT)  # no wait of meshrt
        told.update(failure.ranks)
        assert isinstance(failure.error, ActorError) and failure.error.endpoint == "__init__"
        assert failure.error.remote.message == "no device"


@pytest.mark.parametrize("handled", [True, False])
def test_a_failed_init_that_the_hook_handles_is_no_failure_of_the_program(handled: bool, tmp_path: Path) -> None:
    code, err = ends(
        tmp_path,
        *FAILS,
        "told = queue.SimpleQueue()",
        f"meshrt.unhandled_fault_hook = told.put if {handled} else None",
        "from meshrt.mesh import program",
        "shutdown = program._shutdown",
        "program._shutdown = lambda _grace, why: shutdown(20, why)",  # on a loaded machine it may not fail within 0.5 s
        "broken = mesh.spawn('broken', Fails)",
        # It is imported, and fails within the grace of the end.
        "told.get(timeout=20) if meshrt.unhandled_fault_hook else wait_until(begun.exists, 20)",
    )
    assert code == (0 if handled else 1)
    assert ("ROOT CAUSE" in err) != handled


def test_a_failed_init_behind_the_grace_is_named(tmp_path: Path) -> None:
    """No record is kept of what fails while a mesh is cut off: code that was interrupted may fail in any way."""
    code, err = ends(
        tmp_path,
        *FAILS,
        "broken = mesh.spawn('broken', Fails, waits=True)",
        "wait_until(begun.exists, 20)",
    )
    assert code == 1 and " (not recorded):\n" in err
    assert "  broken.__init__() raised on rank 0: ValueError: no device\n" in err


def test_an_owner_that_has_caught_it_has_decided_and_one_that_has_not_passes_it_up(
    hooked: queue.SimpleQueue[MeshFailure],
) -> None:
    actor = proc_mesh(n=1).spawn("careless", PlainSpawner)
    mesh = proc_mesh(n=3, name="ours")  # it catches the error of the first rank
    actor.spawn_breaking.call_one(mesh, True).get(WAIT)
    actor.spawn_breaking.call_one(proc_mesh(n=1, name="others"), False).get(WAIT)
    assert hooked.get(timeout=WAIT).mesh_name == "others"


def test_what_a_caller_elsewhere_has_caught_is_told_to_the_script_all_the_same() -> None:
    victims = proc_mesh(n=2, name="victims").spawn("victim", Echo)
    pids = victims.pid.call().get(WAIT).values()
    catcher = proc_mesh(n=1).spawn("catcher", Catcher).get(WAIT)
    other = proc_mesh(n=1).spawn("other", Owner, "").get(WAIT)
    os.kill(pids[1], signal.SIGKILL)
    caught: list[object] = []

    def calls() -> BaseException:
        while True:
            try:
                caught.append(catcher.call.call_one(victims).get(WAIT))
            except ProcessDied as error:
                return error

    told = calls()
    assert isinstance(told, ProcessDied) and told.mesh_name == "victims"
    wait_until(lambda: catcher.call.call_one(victims).get(WAIT) == "ProcessDied", WAIT)
    assert other.ping.call_one().get(WAIT) == "here"


def test_the_hook_is_called_while_the_script_waits_for_nothing(hooked: queue.SimpleQueue[MeshFailure]) -> None:
    victims = proc_mesh(n=1, name="victims").spawn("victim", Echo)
    os.kill(victims.pid.call_one().get(WAIT), signal.SIGKILL)
    assert hooked.get(timeout=WAIT).mesh_name == "victims"


def test_what_supervise_raises_is_printed_although_an_owner_above_handles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    top = proc_mesh(n=1).spawn("top", Owner, "handle", str(tmp_path / "seen"))
    pids = top.make_owner.call_one("raise").get(WAIT)
    os.kill(pids[1], signal.SIGKILL)
    text = err.wait_for("a failure of inner: handled by top.__supervise__()")
    assert "raised in __supervise__(), which was called for a failure of inner" in text
    assert "in __supervise__" in text and "IsADirectoryError" in text  # it has no file to note that in


def test_a_hook_that_is_async_is_an_error_of_the_next_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hook(_failure: MeshFailure) -> None: ...

    monkeypatch.setattr(meshrt, "unhandled_fault_hook", hook)
    victims = proc_mesh(n=1).spawn("victim", Echo)
    other = proc_mesh(n=1).spawn("other", Owner, "").get(WAIT)
    os.kill(victims.pid.call_one().get(WAIT), signal.SIGKILL)
    assert "must be a plain function: an async function is not awaited" in str(next_wait(other))

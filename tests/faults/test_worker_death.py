"""A rank dies: by a signal, by ``_exit``, in every phase of its life; the error comes, and soon."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, ActorMesh, LocalEngine, MeshStopped, ProcessDied, ProcMesh, endpoint, proc_mesh, testing
from meshrt.errors import SupervisionError
from meshrt.mesh.hosts import Hosts
from meshrt.mesh.program import start_root
from meshrt.mesh.record import Owner as MeshOwner
from meshrt.mesh.spawning import Spawning
from meshrt.mesh.spec import MeshSpec
from tests.faults.actors import DEATHS, AsyncVictim, BornDead, Victim
from tests.faults.watch import LONG, all_gone
from tests.support.hostnames import HOST_NAMES
from tests.support.pausing import pause
from tests.support.waiting import wait_until

#: Seconds until an error is visible: 0.1 to 0.2 are meant; the machine is loaded.
SOON = 1.0

ENGINES = [pytest.param(None, id="default"), pytest.param(LocalEngine(2), id="two-agents")]
KINDS = sorted(DEATHS)


@pytest.fixture(params=ENGINES)
def mesh(request: pytest.FixtureRequest) -> ProcMesh:
    return proc_mesh(hosts=2, gpus=2, engine=request.param)


def check(error: SupervisionError, kind: str, rank: int, pid: int, host: str = "") -> None:
    """The error says everything about the death."""
    assert isinstance(error, ProcessDied)
    assert (error.exit_code, error.signal) == DEATHS[kind]
    assert error.rank == rank and error.place.pid == pid and error.place.host.startswith(host or HOST_NAMES)
    assert f"rank {rank}" in str(error) and f"pid {pid}" in str(error)
    assert (signal.Signals(error.signal).name if error.signal else f"code {error.exit_code}") in str(error)


def others_answer(victims: ActorMesh[Victim], dead: set[int]) -> None:
    for rank in sorted(set(range(len(victims))) - dead):
        assert victims.flatten("all").slice(all=rank).echo.call_one(rank).get(LONG) == rank


@pytest.mark.slow
@pytest.mark.row("P1", "P3")
@pytest.mark.parametrize("kind", KINDS)
def test_in_a_call_to_one_rank(mesh: ProcMesh, kind: str) -> None:
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    begin = time.monotonic()
    with pytest.raises(ProcessDied) as caught:
        victims.slice(hosts=1, gpus=0).die.call_one(kind).get(LONG)
    assert time.monotonic() - begin < SOON
    check(caught.value, kind, 2, pids[2])
    assert caught.value.may_have_run and caught.value.endpoint == "die" and caught.value.others == ()
    others_answer(victims, {2})


@pytest.mark.slow
@pytest.mark.row("P1", "P2", "P3")
@pytest.mark.parametrize("kind", KINDS)
def test_in_a_mesh_call_the_others_are_not_waited_for(mesh: ProcMesh, kind: str, tmp_path: Path) -> None:
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    begin = time.monotonic()
    with pytest.raises(ProcessDied) as caught:
        victims.die.call(kind, (1,), str(tmp_path / "gate")).get(LONG)
    assert time.monotonic() - begin < SOON
    check(caught.value, kind, 1, pids[1])
    assert dict(caught.value.place.coordinates) == {"hosts": 0, "gpus": 1}
    (tmp_path / "gate").touch()
    others_answer(victims, {1})


@pytest.mark.slow
@pytest.mark.row("P1", "P3")
@pytest.mark.parametrize("kind", ["sigkill", "exit0"])
def test_in_an_async_endpoint(mesh: ProcMesh, kind: str, tmp_path: Path) -> None:
    victims = mesh.spawn("victim", AsyncVictim)
    pids = victims.pid.call().get(LONG).values()
    with pytest.raises(ProcessDied) as caught:
        victims.die.call(kind, (3,), str(tmp_path / "gate")).get(LONG)
    check(caught.value, kind, 3, pids[3])
    (tmp_path / "gate").touch()
    assert victims.slice(hosts=0).pid.call().get(LONG).values() == pids[:2]


@pytest.mark.slow
@pytest.mark.row("P1")
def test_idle(mesh: ProcMesh) -> None:
    """Nobody waits: the next call is told, and it surely has not run."""
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    os.kill(pids[0], signal.SIGKILL)
    all_gone(pids[:1], SOON)
    with pytest.raises(ProcessDied) as caught:
        wait_until(lambda: victims.slice(hosts=0, gpus=0).pid.call_one().get(LONG) and None, LONG)
    check(caught.value, "sigkill", 0, pids[0])
    with pytest.raises(ProcessDied) as caught:
        victims.pid.call().get(LONG)
    assert caught.value.may_have_run is False and "did not run" in str(caught.value)
    others_answer(victims, {0})


@pytest.mark.slow
@pytest.mark.row("P1")
@pytest.mark.parametrize("waiting", ["get", "callback", "stream", "await"])
def test_every_way_of_waiting_is_told(mesh: ProcMesh, waiting: str, tmp_path: Path) -> None:
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    gate = str(tmp_path / "gate")
    errors: list[BaseException | None] = []
    if waiting == "stream":
        errors += [future.exception(LONG) for future in victims.die.stream("sigkill", (1,), "")]
        assert sum(error is not None for error in errors) == 1
    elif waiting == "callback":
        victims.die.call("sigkill", (1,), gate).add_done_callback(lambda future: errors.append(future.exception(0)))
        wait_until(lambda: errors, SOON)
    elif waiting == "await":
        import asyncio

        async def main() -> None:
            await victims.die.call("sigkill", (1,), gate)

        with pytest.raises(ProcessDied) as caught:
            asyncio.run(main())
        errors.append(caught.value)
    else:
        errors.append(victims.die.call("sigkill", (1,), gate).exception(LONG))
    (error,) = filter(None, errors)
    assert isinstance(error, SupervisionError)
    check(error, "sigkill", 1, pids[1])
    (tmp_path / "gate").touch()


@pytest.mark.row("P2")
def test_the_native_stack_comes_with_a_crash() -> None:
    victims = proc_mesh(n=2).spawn("victim", Victim)
    with pytest.raises(ProcessDied) as caught:
        victims.die.call("sigsegv", (1,)).get(LONG)
    assert "Segmentation fault" in caught.value.stack and "end_process" in caught.value.stack
    assert "end_process" in str(caught.value)


def overflow_in_c() -> None:
    """Use up the stack below Python, where no limit of the interpreter is asked: hashing counts no recursion."""
    nested: tuple[Any, ...] = ()
    for _ in range(1_000_000):
        nested = (nested,)
    hash(nested)


@pytest.mark.row("P12")
def test_recursion_in_c_is_a_crash_like_any_other() -> None:
    victims = proc_mesh(n=2).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    with pytest.raises(ProcessDied) as caught:
        victims.slice(n=1).apply.call_one(overflow_in_c).get(LONG)
    check(caught.value, "sigsegv", 1, pids[1])
    assert "overflow_in_c" in caught.value.stack
    others_answer(victims, {1})


@pytest.mark.row("P9")
@pytest.mark.parametrize("kind", ["exit7", "sigkill"])
def test_the_last_lines_come_with_the_error(kind: str) -> None:
    victims = proc_mesh(n=1).spawn("victim", BornDead, kind)
    with pytest.raises(ProcessDied) as caught:
        victims.get(LONG)
    assert caught.value.log_tail[-1] == "last words of rank 0" and "last words" in str(caught.value)


@pytest.mark.slow
@pytest.mark.row("P9")
@pytest.mark.parametrize("kind", ["sigkill", "exit0"])
def test_in_init(mesh: ProcMesh, kind: str, tmp_path: Path) -> None:
    born = mesh.spawn("born", BornDead, kind, (2,), str(tmp_path / "gate"))
    early = born.slice(hosts=1, gpus=0).pid.call_one()
    with pytest.raises(ProcessDied) as caught:
        born.get(LONG)
    assert caught.value.rank == 2 and caught.value.endpoint == "__init__"
    with pytest.raises(ProcessDied):
        early.get(LONG)
    (tmp_path / "gate").touch()
    assert born.slice(hosts=0, gpus=0).pid.call_one().get(LONG) == mesh_pid(mesh, 0)


def mesh_pid(mesh: ProcMesh, rank: int) -> int:
    pid: int = mesh.flatten("all").slice(all=rank).spawn("probe", Victim).pid.call_one().get(LONG)
    return pid


@pytest.mark.slow
@pytest.mark.row("X3")
@pytest.mark.parametrize("phase", ["in a call", "idle"])
def test_all_ranks_at_once_are_one_error(mesh: ProcMesh, phase: str) -> None:
    """One error lists all of them, in the order of their ranks."""
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    if phase == "in a call":
        first = lost(victims.die.call("sigkill").exception(LONG))
        assert first == sorted(first) and set(first) <= {0, 1, 2, 3}
    else:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    all_gone(pids, SOON)
    wait_until(lambda: lost(victims.pid.call().exception(LONG)) == [0, 1, 2, 3], LONG)


def lost(error: BaseException | None) -> list[int]:
    assert isinstance(error, ProcessDied)
    return [error.rank, *(place.rank for place in error.others)]


@pytest.mark.row("X3")
def test_many_ranks_of_one_agent_die_together() -> None:
    """The agent sees them at once, so the error of the call in flight names every one of them."""
    victims = proc_mesh(n=8).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    pending = victims.wait_for.call("/nowhere/gate")
    pause(*pids[:6])
    for pid in pids[:6]:
        os.kill(pid, signal.SIGKILL)
    error = pending.exception(LONG)
    assert isinstance(error, ProcessDied)
    assert lost(error) == sorted(lost(error)) and set(lost(error)) <= set(range(6))


@pytest.mark.row("X3")
def test_the_error_of_a_call_names_every_rank_that_is_dead_when_it_is_looked_at() -> None:
    mesh = proc_mesh(n=6)
    victims = mesh.spawn("victim", Victim)
    with testing.faults(mesh, testing.kill([4, 1, 2], at=testing.call("wait_for"))) as plan:
        pending = victims.wait_for.call("/nowhere/gate")
        plan.wait(LONG)
    error = pending.exception(LONG)
    assert lost(error) == [1, 2, 4] and "also lost: ranks 2,4" in str(error)


def test_ranks_that_were_stopped_afterwards_are_not_what_a_call_has_failed_by() -> None:
    mesh = proc_mesh(n=3)
    victims = mesh.spawn("victim", Victim)
    with testing.faults(mesh, testing.kill(2, at=testing.call("wait_for"))):
        pending = victims.wait_for.call("/nowhere/gate")
        wait_until(pending.done, LONG)
    mesh.stop(0).get(LONG)
    assert lost(pending.exception(LONG)) == [2]


@pytest.mark.row("P1")
@pytest.mark.parametrize("cls", [Victim, AsyncVictim])
def test_between_a_call_and_its_answer(cls: Any) -> None:
    """It has run, and the caller cannot know that."""
    mesh = proc_mesh(n=2)
    with testing.faults(mesh, testing.kill(1, at=testing.call("pid", 2, after=True))):
        victims = mesh.spawn("victim", cls)
        pids = victims.pid.call().get(LONG).values()
        error = victims.pid.call().exception(LONG)
    assert isinstance(error, ProcessDied) and error.may_have_run
    check(error, "sigkill", 1, pids[1])


@pytest.mark.row("P8")
def test_a_result_written_before_the_death_is_delivered(mesh: ProcMesh) -> None:
    victims = mesh.spawn("victim", Victim)
    rank = victims.slice(hosts=1, gpus=1)
    assert rank.answer_and_die.call_one("the answer").get(LONG) == "the answer"
    with pytest.raises(ProcessDied):
        wait_until(lambda: rank.pid.call_one().get(LONG) and None, LONG)
    others_answer(victims, {3})


@pytest.mark.row("P8")
def test_all_of_a_result_is_delivered_however_often_it_takes_to_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads while the rank lives: its death is known when most of the answer still is in the socket."""
    monkeypatch.setattr("meshrt.transport.link._RECV", 1000)
    victims = proc_mesh(n=2).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    call = victims.slice(n=1).answer_and_die.call_one(bytes(50_000))
    all_gone(pids[1:], LONG)
    (record,) = start_root().registry.running()
    wait_until(lambda: record.fates, LONG)
    assert call.get(LONG) == bytes(50_000)
    assert isinstance(victims.slice(n=1).pid.call_one().exception(LONG), ProcessDied)


@pytest.mark.slow
def test_calls_that_wait_behind_the_fatal_one_all_fail(mesh: ProcMesh) -> None:
    one = mesh.spawn("victim", Victim).slice(hosts=0, gpus=0)
    first = one.echo.call_one("before")
    calls: list[Any] = [one.die.call_one("sigkill"), *(one.echo.call_one(index) for index in range(100))]
    assert first.get(LONG) == "before"
    assert all(isinstance(call.exception(LONG), ProcessDied) for call in calls)


@pytest.mark.slow
@pytest.mark.row("X4")
def test_while_stopping(mesh: ProcMesh, tmp_path: Path) -> None:
    """A death during stop() is no failure of stop()."""
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    pending = victims.wait_for.call(str(tmp_path / "gate"), str(tmp_path / "inside"))
    wait_until(lambda: len(list(tmp_path.iterdir())) == 4, LONG)
    stopped = mesh._owner().stop(mesh.mesh_id, 5.0)
    os.kill(pids[3], signal.SIGKILL)
    assert isinstance(pending.exception(LONG), ProcessDied | MeshStopped)
    (tmp_path / "gate").touch()
    assert stopped.get(LONG) is None
    all_gone(pids, SOON)


class Owner(Actor):
    @endpoint
    def make(self) -> None:
        self.mesh = proc_mesh(n=2, name="inner")


def test_the_mesh_that_a_rank_was_making_when_it_died_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts it for the rank is slow: the rank's end has been handled before there is something to end."""
    mesh = proc_mesh(n=1)
    pid = mesh.spawn("victim", Victim).pid.call_one().get(LONG)
    registry = start_root().registry
    (outer,) = registry.running()
    spawn = Spawning.spawn
    asked = threading.Event()
    made: list[str] = []

    def spawn_late(spawning: Spawning, spec: MeshSpec, hosts: Hosts, owner: MeshOwner) -> str:
        asked.set()
        wait_until(lambda: outer.fates, LONG)
        made.append(spawn(spawning, spec, hosts, owner))
        return made[-1]

    monkeypatch.setattr(Spawning, "spawn", spawn_late)
    mesh.spawn("owner", Owner).make.broadcast()
    assert asked.wait(LONG)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: made and registry.running() == [outer], LONG)
    assert registry.meshes[made[0]].alive() == []

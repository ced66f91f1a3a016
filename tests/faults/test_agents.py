"""The host agent is killed, or stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import meshrt
from meshrt import HostLost, LocalEngine, SpawnError, proc_mesh
from meshrt.mesh.agents import AgentPulse
from meshrt.store.packing import LARGE
from tests.faults.actors import BornDead, Unfinished, Victim
from tests.faults.watch import (
    LONG,
    agents,
    agents_with,
    all_gone,
    is_alive,
    next_agents_with,
    runtime_directories,
    sockets,
)
from tests.support.pausing import paused
from tests.support.programs import run_python
from tests.support.screen import Screen
from tests.support.waiting import wait_until

COUNTS = [pytest.param(1, id="one-agent"), pytest.param(2, id="two-agents")]

LOST_AT_THE_END = """
import os, signal, threading
from meshrt import proc_mesh
from meshrt.mesh.program import start_root
from tests.faults.actors import Victim
from tests.faults.watch import agents
from tests.support.waiting import wait_until
def kill():
    wait_until(lambda: start_root().registry.is_stopped(mesh.mesh_id))
    os.kill(agents()[0], signal.SIGKILL)
with proc_mesh(n=2) as mesh:
    mesh.spawn("victim", Victim).get(30).wait_for.broadcast("/nowhere/gate")
    threading.Thread(target=kill).start()
print("went on")
"""


@pytest.mark.slow
@pytest.mark.row("C7")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("phase", ["idle", "in a call"])
def test_kill_9(count: int, phase: str, tmp_path: Path) -> None:
    """Its ranks end, the error names all of them, the other host goes on, and the next mesh works."""
    engine = LocalEngine(count)
    victims = proc_mesh(hosts=2, gpus=2, engine=engine).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    daemon = victims.slice(hosts=0, gpus=1).daemon.call_one("exec").get(LONG)
    lost = [0, 1, 2, 3] if count == 1 else [0, 1]
    pending = victims.wait_for.call(str(tmp_path / "gate"), str(tmp_path / "inside"))
    if phase == "idle":
        (tmp_path / "gate").touch()
        pending.get(LONG)
    else:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 4, LONG)
    os.kill(agents()[0], signal.SIGKILL)
    all_gone([daemon, *(pids[rank] for rank in lost)], LONG)
    if phase == "idle":  # one after the other comes to be known
        wait_until(lambda: len(getattr(victims.pid.call().exception(LONG), "others", ())) == len(lost) - 1, LONG)
        pending = victims.pid.call()
    error = pending.exception(LONG)
    assert isinstance(error, HostLost) and "(its process was killed by SIGKILL)" in str(error)
    assert [error.rank, *(place.rank for place in error.others)] == lost
    assert error.place.host and f"was lost with the agent of host {error.place.host} (" in str(error)
    (tmp_path / "gate").touch()
    if count == 2:
        assert victims.slice(hosts=1).pid.call().get(LONG).values() == pids[2:]
    assert len(proc_mesh(hosts=2, gpus=2, engine=engine).spawn("victim", Victim).pid.call().get(LONG)) == 4


@pytest.mark.slow
@pytest.mark.row("C7")
@pytest.mark.parametrize("count", COUNTS)
def test_kill_9_while_the_ranks_start(count: int) -> None:
    engine = LocalEngine(count)
    mesh = proc_mesh(hosts=2, gpus=16, engine=engine)
    victims = mesh.spawn("victim", Unfinished)
    wait_until(agents, LONG)
    os.kill(agents()[0], signal.SIGKILL)
    assert isinstance(victims.initialized.exception(LONG), HostLost)
    assert isinstance(mesh.initialized.exception(LONG), SpawnError | None)
    mesh.stop()
    assert len(proc_mesh(n=2, engine=engine).spawn("victim", Victim).pid.call().get(LONG)) == 2


@pytest.mark.row("C7")
@pytest.mark.parametrize("count", COUNTS)
def test_kill_9_in_init(count: int, tmp_path: Path) -> None:
    born = proc_mesh(hosts=2, engine=LocalEngine(count)).spawn("born", BornDead, "error", (99,), str(tmp_path / "gate"))
    waits: list[Any] = [born.initialized, born.pid.call(), born.pid.call()]
    wait_until(lambda: len(agents()) == count, LONG)
    os.kill(agents()[0], signal.SIGKILL)
    assert all(isinstance(future.exception(LONG), HostLost) for future in waits)
    (tmp_path / "gate").touch()


@pytest.mark.row("C7", "X4")
def test_kill_9_while_stopping(tmp_path: Path) -> None:
    mesh = proc_mesh(hosts=2, gpus=2, engine=LocalEngine(2))
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    pending = victims.wait_for.call(str(tmp_path / "gate"))
    stopping = mesh._owner().stop(mesh.mesh_id, 1.0)
    os.kill(agents()[0], signal.SIGKILL)
    assert stopping.get(LONG) is None
    assert isinstance(pending.exception(LONG), HostLost)
    all_gone(pids, LONG)


@pytest.mark.row("C7", "X4")
def test_work_that_is_lost_with_its_agent_while_the_mesh_ends_is_a_failure() -> None:
    """As it is where a rank dies then. It was told to nobody, and the exit status was 0."""
    done = run_python("-c", LOST_AT_THE_END)
    assert done.returncode == 1 and "went on" in done.stdout
    assert "ranks of mesh1 (its process was killed by SIGKILL), which was being stopped" in done.stderr
    assert "ROOT CAUSE  host " in done.stderr


@pytest.mark.slow
@pytest.mark.row("C7")
def test_all_agents_die_and_the_program_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second host may be lost so much later that it is a failure of its own.
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)
    for _ in range(3):
        victims = proc_mesh(hosts=2, engine=LocalEngine(2)).spawn("victim", Victim).get(LONG)
        pids = victims.pid.call().get(LONG).values()
        for agent in agents():
            os.kill(agent, signal.SIGKILL)
        assert isinstance(victims.wait_for.call("/nowhere").exception(LONG), HostLost)
        all_gone(pids, LONG)


def test_the_survivors_of_a_lost_host_are_used_again() -> None:
    """Only the lost one is replaced; its files are removed, and the survivor's ranks go on."""
    engine = LocalEngine(2)
    first = proc_mesh(hosts=2, engine=engine).spawn("victim", Victim).get(LONG)
    pids = first.pid.call().get(LONG).values()
    before = agents()
    files = len(sockets())
    os.kill(before[0], signal.SIGKILL)
    assert isinstance(first.wait_for.call("/nowhere").exception(LONG), HostLost)
    wait_until(lambda: len(sockets()) == files - 2, LONG, "the sockets of the lost store and its rank are removed")
    second = proc_mesh(hosts=2, engine=engine).spawn("victim", Victim).get(LONG)
    now = agents()
    assert len(now) == 2 and before[1] in now and before[0] not in now
    assert is_alive(pids[1])
    assert [psutil.Process(pid).ppid() for pid in second.pid.call().get(LONG).values()] == [now[1], before[1]]
    meshrt.shutdown_context(0.5)
    assert agents() == []
    all_gone([*pids, *before], 1)


@pytest.mark.row("C2c")
def test_a_stopped_agent_is_told_and_so_is_its_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentPulse, "INTERVAL", 0.05)
    screen = Screen.instead_of("stderr", monkeypatch)
    victims = proc_mesh(hosts=2, engine=LocalEngine(2)).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    first, _ = agents()
    monkeypatch.setattr(AgentPulse, "SILENT_SECONDS", 1.0)  # not before: an agent that starts may take longer
    with paused(first):
        screen.wait_for(f"~0 (pid {first}) does not answer; its ranks continue to run\n")
        assert victims.pid.call().get(LONG).values() == pids
        assert "~0 answers again" not in screen.text
    screen.wait_for("~0 answers again\n")
    assert " was lost" not in screen.text
    assert len(proc_mesh(hosts=2, engine=LocalEngine(2)).spawn("more", Victim).pid.call().get(LONG)) == 2


@pytest.mark.row("C2c")
def test_a_stopped_agent_is_not_dead() -> None:
    """Calls do not need it, and after SIGCONT it serves again."""
    mesh = proc_mesh(n=2)
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    (agent,) = agents()
    with paused(agent):
        begin = time.monotonic()
        wait_until(lambda: time.monotonic() - begin > 2.5 or victims.pid.call().get(LONG).values() != pids, LONG)
        later = proc_mesh(n=1).spawn("later", Victim).pid.call()
        assert not later.done()
    assert victims.pid.call().get(LONG).values() == pids
    assert len(later.get(LONG)) == 1


@pytest.mark.row("C2c")
def test_stop_does_not_wait_for_a_stopped_agent() -> None:
    """The ranks end without it."""
    mesh, other = proc_mesh(n=2), proc_mesh(n=1)
    pids = mesh.spawn("victim", Victim).pid.call().get(LONG).values()
    victim = other.spawn("victim", Victim).get(LONG)
    (agent,) = agents()
    with paused(agent):
        begin = time.monotonic()
        mesh.stop(0.5)
        assert time.monotonic() - begin < 0.5 + 1.0 + 4.0
        all_gone(pids, 1)
        assert victim.echo.call_one(1).get(LONG) == 1
    assert victim.echo.call_one(2).get(LONG) == 2
    assert len(proc_mesh(n=1).spawn("victim", Victim).pid.call().get(LONG)) == 1


@pytest.mark.row("C2c")
def test_the_end_of_the_program_does_not_wait_for_a_stopped_agent() -> None:
    victims = proc_mesh(n=2).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    (agent,) = agents()
    with paused(agent):
        begin = time.monotonic()
        meshrt.shutdown_context(0.2)
        assert time.monotonic() - begin < 10
        all_gone([agent, *pids], 1)


def test_an_agent_that_fails_takes_nothing_of_the_program_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its traceback is printed; the runtime directory is that of a program that lives."""
    victims = proc_mesh(n=2).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    (directory,) = runtime_directories()
    before = sorted(directory.iterdir())
    broken = "def broken(*_):\n    raise OSError(28, 'No space left on device')\nagent.StoreServer = broken"
    next_agents_with(broken, tmp_path, monkeypatch)
    screen = Screen.instead_of("stderr", monkeypatch)
    # The agents fail one after the other; the error of the start may be of the first one.
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)
    lost = proc_mesh(hosts=2, engine=LocalEngine(2))
    assert isinstance(lost.initialized.exception(LONG), HostLost | SpawnError)
    screen.wait_for("No space left on device\n")
    wait_until(lambda: len(agents()) == 1, LONG)
    assert sorted(directory.iterdir()) == before
    assert victims.pid.call().get(LONG).values() == pids
    assert len(proc_mesh(n=2).spawn("more", Victim).pid.call().get(LONG)) == 2


def test_nobody_waits_for_the_store_of_an_agent_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "def broken(*_):\n    raise OSError(28, 'No space left on device')\nagent.StoreServer = broken"
    agents_with(broken, tmp_path, monkeypatch)
    monkeypatch.setattr("meshrt.store.registrars._START", 10 * LONG)
    victims = proc_mesh(n=2).spawn("victim", Victim, np.ones(LARGE))
    assert isinstance(victims.initialized.exception(LONG), HostLost | SpawnError)

"""Pids begin again some day: what is known by the pid of one that has ended belongs to somebody else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.watch import Program

#: Runs a program with pids of its own: what other programs of this machine are given is left alone.
OWN_PIDS = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *([] if os.geteuid() == 0 else ["-r"])]

GIVEN = """
    import subprocess
    from tests.faults.watch import agents, is_alive
    from tests.support.pausing import paused
    from tests.support.waiting import wait_until
    def next_pid(number):
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(number - 1))
"""


@pytest.fixture(autouse=True)
def pids_can_be_chosen() -> None:
    """Skip where they cannot."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (of util-linux) is not installed")
    there = subprocess.run([*OWN_PIDS, "true"], capture_output=True, text=True, check=False)
    if there.returncode:
        pytest.skip(f"no pids of its own can be had here: {there.stderr.strip()}")


@pytest.mark.row("P16")
def test_no_stranger_is_signalled(tmp_path: Path) -> None:
    """The number of a dead rank now belongs to somebody else."""
    script = """
    mesh = proc_mesh(n=2)
    pid, other = mesh.spawn("victim", Victim).pid.call().get(20).values()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 20)
    while True:  # a thread that begins just now takes the number, too
        next_pid(pid)
        stranger = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
        if stranger.pid == pid:
            break
        stranger.kill()
        stranger.wait()
    with paused(other):  # it has to be killed, so `stop` goes all the way
        mesh.stop(0.1)
    tell(same=stranger.pid == pid, other=is_alive(other), stranger=stranger.poll() is None)
    """
    with Program(GIVEN + script, tmp_path, launcher=OWN_PIDS) as program:
        assert [program.told(name) for name in ("same", "other", "stranger")] == [True, False, True]
        program.ends()


@pytest.mark.slow
@pytest.mark.row("P16")
def test_an_agent_is_not_taken_for_one_that_has_ended(tmp_path: Path) -> None:
    """What one has kept in shared memory is lost; what the next one keeps is not, and its ranks start."""
    script = """
    import numpy
    engine = LocalEngine(2)
    victims = proc_mesh(hosts=2, engine=engine).spawn("victim", Victim).get(20)
    array = numpy.ones(1 << 17)
    assert len(victims.echo.call(array).get(20)) == 2
    dead = agents()[0]
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: victims.pid.call().exception(20), 20)
    wait_until(lambda: not os.path.exists(f"/proc/{dead}"), 20)
    next_pid(dead)
    victims = proc_mesh(hosts=2, engine=engine).spawn("victim", Victim)
    tell(sums=[value.sum() for value in victims.echo.call(array).get(20).values()], again=dead in agents())
    """
    with Program(GIVEN + script, tmp_path, launcher=OWN_PIDS) as program:
        assert program.told("sums") == [1 << 17] * 2
        assert not program.told("again")
        program.ends()


@pytest.mark.row("P16")
def test_a_store_takes_nobody_for_a_holder_that_has_ended(tmp_path: Path) -> None:
    """Neither its process has a connection to the store."""
    script = f"""
    import selectors
    from meshrt.store.server import StoreServer
    store = StoreServer(selectors.DefaultSelector(), {str(tmp_path)!r}, {str(tmp_path)!r}, b"s" * 32, 1 << 20, print)
    holder = subprocess.Popen(["sleep", "600"])
    store.registry.give(5, [holder.pid])
    store.tick()
    before = holder.pid in store.registry.processes()
    began = time.monotonic()
    holder.kill()
    holder.wait()
    while time.monotonic() < began + 0.1:
        time.sleep(0.01)  # pids come again much later than a tick of the clock that processes are known by
    next_pid(holder.pid)
    stranger = subprocess.Popen(["sleep", "600"])
    store.tick()
    tell(same=stranger.pid == holder.pid, before=before, after=holder.pid in store.registry.processes())
    stranger.kill()
    stranger.wait()
    store.close()
    """
    with Program(GIVEN + script, tmp_path, launcher=OWN_PIDS) as program:
        assert [program.told(name) for name in ("same", "before", "after")] == [True, True, False]
        assert program.ends() == 0


@pytest.mark.row("P16")
def test_nobody_waits_for_the_end_of_another_process_than_the_worker_that_has_failed(tmp_path: Path) -> None:
    script = """
    from meshrt.failure.telling import _has_ended
    worker = subprocess.Popen(["sleep", "600"])
    while _has_ended(worker.pid, time.monotonic_ns()):
        time.sleep(0.01)  # its clock counts ticks
    failed = time.monotonic_ns()
    lives = not _has_ended(worker.pid, failed)
    worker.kill()
    zombie = not _has_ended(worker.pid, failed)
    worker.wait()
    reaped = _has_ended(worker.pid, failed)
    while time.monotonic_ns() < failed + 100_000_000:
        time.sleep(0.01)
    next_pid(worker.pid)
    stranger = subprocess.Popen(["sleep", "600"])
    tell(facts=[lives, zombie, reaped, stranger.pid == worker.pid, _has_ended(worker.pid, failed)])
    stranger.kill()
    stranger.wait()
    """
    with Program(GIVEN + script, tmp_path, launcher=OWN_PIDS) as program:
        assert program.told("facts") == [True] * 5
        assert program.ends() == 0

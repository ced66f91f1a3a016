"""The program of a job: whom it waits for, and how its hosts find each other."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from meshrt.hooks.fate import Fate
from meshrt.spmd import job
from meshrt.spmd.parts import JOB_PROGRAM, JobSpec
from tests.support.waiting import wait_until

ENDED = Fate("stopped")
SPEC = JobSpec("meet", {"hosts": 1, "gpus": 2}, ["train.py"], "main", "torchrun", 0, 1, 17)


def ranks_of(size: int, *, local_size: int = 0, parent: bool = True) -> job._Ranks:
    return job._Ranks(size, local_size or size, lambda: parent)


def waiting(ranks: job._Ranks) -> threading.Thread:
    thread = threading.Thread(target=ranks.wait)
    thread.start()
    return thread


def test_all_are_waited_for() -> None:
    ranks = ranks_of(2)
    thread = waiting(ranks)
    ranks.born("m", 0)
    ranks.born("m", 1)
    ranks.gone("m", 0, ENDED)
    thread.join(0.1)
    assert thread.is_alive()
    ranks.gone("m", 1, ENDED)
    thread.join(10)
    assert not thread.is_alive()


def test_one_that_has_ended_before_it_had_joined_and_other_meshes_keep_nobody_waiting() -> None:
    ranks = ranks_of(3)
    ranks.mesh_id = "m"
    thread = waiting(ranks)
    ranks.born("m", 0)
    ranks.gone("m", 1, Fate("unborn"))
    for _ in range(2):  # started again
        ranks.born("m", 2)
        ranks.gone("m", 2, ENDED)
    ranks.born("made by rank 0", 0)
    ranks.gone("made by rank 0", 0, ENDED)
    thread.join(0.1)
    assert thread.is_alive()
    ranks.gone("m", 0, ENDED)
    thread.join(10)
    assert not thread.is_alive()


def test_other_hosts_are_not_waited_for_when_the_launcher_has_ended_the_first_one() -> None:
    ranks = ranks_of(3, local_size=2)
    for rank in range(3):
        ranks.born("m", rank)
    thread = waiting(ranks)
    ranks.gone("m", 0, Fate("died", signal=signal.SIGTERM))
    thread.join(0.5)
    assert thread.is_alive()
    ranks.gone("m", 1, Fate("died", exit_code=0))
    thread.join(10)
    assert not thread.is_alive()


def test_other_hosts_are_waited_for_when_the_first_one_has_nothing_left_to_do() -> None:
    ranks = ranks_of(2, local_size=1)
    ranks.born("m", 0)
    ranks.born("m", 1)
    thread = waiting(ranks)
    ranks.gone("m", 0, Fate("died", exit_code=0))
    thread.join(0.5)
    assert thread.is_alive()
    ranks.gone("m", 1, ENDED)
    thread.join(10)
    assert not thread.is_alive()


def test_a_parent_that_has_ended_is_not_waited_for_although_nobody_has_reaped_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        runs = job._watch(process.pid)
        assert runs()
        process.kill()
        wait_until(lambda: not runs())
        assert psutil.pid_exists(process.pid)
    assert not job._watch(process.pid)()


def test_it_ends_when_its_starter_was_killed_before_it_said_what_to_do() -> None:
    done = subprocess.run([sys.executable, str(JOB_PROGRAM)], input="", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_have_joined_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = ranks_of(1)
    ranks.born("m", 0)
    thread = waiting(ranks)
    thread.join(0.1)
    assert thread.is_alive()
    ranks.gone("m", 0, ENDED)
    thread.join(10)
    assert not thread.is_alive()


def test_one_that_never_joins_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_NEXT", 0.05)
    ranks = ranks_of(2)
    thread = waiting(ranks)
    ranks.born("m", 0)
    ranks.gone("m", 0, ENDED)
    thread.join(10)
    assert not thread.is_alive()


def test_the_first_is_waited_for_as_long_as_it_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_NEXT", 0.05)
    monkeypatch.setattr(job, "_LOOK", 0.02)
    ranks = ranks_of(1)
    thread = waiting(ranks)
    thread.join(0.3)
    assert thread.is_alive()
    ranks.born("m", 0)
    ranks.gone("m", 0, ENDED)
    thread.join(10)
    assert not thread.is_alive()
    ranks_of(2, parent=False).wait()


def test_one_host_needs_no_rendezvous() -> None:
    assert job.rendezvous_of(SPEC) is None


def test_the_port_of_the_script_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no launcher serves torch's store, rank 0 of the script does, later."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("MESHRT_RENDEZVOUS", str(tmp_path))
    found = job.rendezvous_of(SPEC._replace(sizes={"hosts": 2, "gpus": 1}, launcher="SLURM", hosts=2))
    assert found is not None and str(tmp_path) in str(found.way)

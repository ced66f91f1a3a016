"""A machine that cannot hold a mesh says so at once and in words; what runs goes on."""

from __future__ import annotations

import os

import pytest

from tests.support.programs import run_python

BEGIN = """\
import resource
from meshrt import SpawnError, proc_mesh
from tests.support.actors import Echo
"""


def test_open_files_that_would_not_suffice() -> None:
    done = run_python(
        "-c",
        BEGIN
        + """
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
echo = proc_mesh(n=2).spawn("echo", Echo)
try:
    proc_mesh(n=500)
except SpawnError as error:
    print("REFUSED", error)
print("STILL", echo.rank.call().get(20).values())
""",
    )
    assert done.returncode == 0
    assert "REFUSED 500 ranks need about" in done.stdout and "open files" in done.stdout
    assert "the limit is 200: raise it (ulimit -Hn) or start at most" in done.stdout
    assert "STILL [0, 1]" in done.stdout


@pytest.mark.slow
def test_a_soft_limit_of_open_files_is_raised() -> None:
    done = run_python(
        "-c",
        BEGIN
        + """
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
print("SUM", sum(proc_mesh(n=24).spawn("echo", Echo).rank.call().get(30).values()))
""",
    )
    assert done.returncode == 0 and f"SUM {sum(range(24))}" in done.stdout


def test_memory_that_would_not_suffice() -> None:
    done = run_python("-c", BEGIN + "proc_mesh(hosts=100, gpus=1000)")
    assert done.returncode == 1
    assert "SpawnError: 100000" in done.stderr
    assert "MiB are free: start at most" in done.stderr or "open files" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="the limit of processes does not hold for root")
def test_processes_that_would_not_suffice() -> None:
    done = run_python(
        "-c",
        BEGIN
        + """
resource.setrlimit(resource.RLIMIT_NPROC, (300, 300))
proc_mesh(n=128)
""",
    )
    assert done.returncode == 1 and "raise it (ulimit -u)" in done.stderr

"""Two machines whose programs have their directories in one place, as in a home that is shared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster

SHARED = ["env", "HOME=/tmp/home", "MESHRT_RUNTIME_DIR=/tmp/shared/r", "MESHRT_RUNS=/tmp/shared/runs"]
#: Takes its directories, as a program does. Its locks are not seen afterwards, as on a file system that has none for
#: other machines.
_PROGRAM = """
import json, os, sys
from meshrt.transport import directories, dirlock
path, run = directories.create_runtime("0000beef"), directories.create_run("0000beef")
(path / "program.json").write_text(json.dumps(dirlock.identity()))
os.closerange(3, 1000)
print("up", flush=True)
sys.stdin.read()
os._exit(0)
"""
#: Begins as every program does, which removes what others have left.
_NEXT = """
import shutil
from meshrt.transport import directories
path = directories.create_runtime("00000001")
runs = path.parents[1].joinpath("runs").iterdir()
print(path.with_name("p-0000beef").exists(), [directories.in_use(run) for run in runs])
shutil.rmtree(path)
"""


def age(place: Path, seconds: float) -> None:
    """Have all files seem so much older."""
    for path in (place, *place.rglob("*")):
        before = path.stat().st_mtime
        os.utime(path, (before - seconds, before - seconds))


@pytest.mark.slow
def test_a_program_of_another_machine_keeps_its_directories_while_it_sets_their_times(cluster: Cluster) -> None:
    """Whatever runs there: its pid is not found here, or is that of another process."""
    first, second = cluster.machines
    shared = first.switch.shared

    def look() -> str:
        done = first.run(*SHARED, sys.executable, "-c", _NEXT)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    pipe = subprocess.PIPE
    with second.start(*SHARED, sys.executable, "-c", _PROGRAM, stdin=pipe, stdout=pipe) as program:
        assert program.stdout is not None and program.stdout.readline() == b"up\n"
        age(shared, 600)
        assert look() == "True [True]"
    age(shared, 600)
    assert look() == "False [False]", "a program that lives sets them every five minutes"

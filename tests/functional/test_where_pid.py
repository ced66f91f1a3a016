"""``meshrt where --pid``: the stacks of processes that meshrt has not started, of each Python that is found here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.errors import MeshError
from meshrt.inspect.pyspy import find
from meshrt.transport.kernel import is_stopped
from tests.support.programs import environment, run_python
from tests.support.pythons import NOBODY, base_of, found_python, runs_for_others
from tests.support.waiting import wait_until

TARGET = """\
import threading

def load():
    threading.Event().wait()

def step(kind):
    if kind == "odd":
        threading.Lock().acquire(timeout=1000) or threading.Event().wait()
    print("here", flush=True)
    while True:
        threading.Event().wait()

if __name__ == "__main__":
    import sys
    threading.Thread(target=load, name="loader-1", daemon=True).start()
    step(sys.argv[1])
"""


def _installed() -> bool:
    try:
        find()
    except MeshError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _installed(), reason="py-spy is not installed")


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[list[int]]:
    """Two processes at one place: of this Python, and of 3.14 where that is found."""
    (tmp_path / "train.py").write_text(TARGET)
    pythons = [sys.executable, base_of(found_python()) if found_python() else sys.executable]
    begun = [
        subprocess.Popen([python, str(tmp_path / "train.py"), "even"], stdout=subprocess.PIPE, text=True)
        for python in pythons
    ]
    try:
        for process in begun:
            assert process.stdout is not None and process.stdout.readline() == "here\n"
        yield [process.pid for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def where(*words: str | int, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "meshrt", "where", *map(str, words), env=env)


def test_equal_stacks_are_one_and_a_process_that_has_ended_is_named(pids: list[int]) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    done = where("--pid", *pids, ended.pid)
    assert done.returncode == 1 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["0", f"{pids[0]}"],
        ["1", f"{pids[1]}"],
        ["2", f"{ended.pid}"],
    ]
    assert "3 ranks of these processes, 2 answered" in lines and "thread loader" in lines
    (step,) = [line for line in lines if "step  " in line]
    assert "train.py:11" in step and "_bootstrap" not in done.stdout
    assert f"2 (n=2): PID {ended.pid}: there is no such process" in done.stdout
    assert "likely culprits: 2 (n=2) (at another place than the other 2)" in done.stdout


def test_as_a_record(pids: list[int]) -> None:
    done = where("--pid", *pids, "--json")
    record = json.loads(done.stdout)
    assert (done.returncode, record["command"], record["ok"]) == (0, "where", True)
    assert [(each["rank"], each["pid"]) for each in record["processes"]] == [*enumerate(pids)]
    (mesh,) = record["meshes"]
    assert mesh["answered"]["ranks"] == [0, 1]
    assert [(tree["kind"], tree["label"], tree["ranks"]) for tree in mesh["trees"]] == [
        ("actor", "main thread", [0, 1]),
        ("thread", "loader", [0, 1]),
    ]


def test_what_is_refused() -> None:
    with subprocess.Popen(["sleep", "100"]) as sleep:
        done = where("--pid", sleep.pid)
        assert done.returncode == 1 and f"PID {sleep.pid} is not a Python process" in done.stderr
        sleep.kill()
    done = where("--pid", sleep.pid, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["type"]) == (2, "UsageError") and "there is no such process" in error["message"]
    done = where("--pid", "trainer")
    assert done.returncode == 2 and "'trainer' is not a PID" in done.stderr


@pytest.mark.skipif(not runs_for_others(sys.executable), reason="no other user can run this Python")
def test_without_the_right_to_look_into_it(pids: list[int]) -> None:
    command = [sys.executable, "-m", "meshrt", "where", "--pid", str(pids[0])]
    env = environment(HOME="/", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd="/", user=NOBODY)
    assert done.returncode == 1 and f"PID {pids[0]} belongs to the user root" in done.stderr


def test_a_process_that_a_signal_has_stopped_is_read_as_it_is(pids: list[int]) -> None:
    os.kill(pids[0], signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(pids[0]))
        done = run_python("-m", "meshrt", "where", "--pid", str(pids[0]))
    finally:
        os.kill(pids[0], signal.SIGCONT)
    assert done.returncode == 0 and "step" in done.stdout, done.stderr

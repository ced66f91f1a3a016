"""``meshrt.join()``: processes that something else has started, as the tools see them from then on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

_SECONDS = 60
ALONE = """\
import os, sys, time
import meshrt
print(meshrt.join("solo", wait=60), flush=True)
total = 0
while not os.path.exists(sys.argv[1]):
    total += 1
    time.sleep(0.02)
exec(sys.argv[2])
"""
POOL = """\
import functools, multiprocessing, os, sys, time
import meshrt

def work(number):
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    return number

if __name__ == "__main__":
    given = {"mesh": 3} if len(sys.argv) < 4 else {}
    start = functools.partial(meshrt.join, "worker", **given)
    with multiprocessing.get_context(sys.argv[2]).Pool(3, start) as pool:
        print(sum(pool.map(work, range(6), chunksize=1)), flush=True)
"""


class Joined:
    """A program that joins, with a runtime directory of its own."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self._folder = folder
        self.runtime = runtime
        self._env = environment(MESHRT_RUNTIME_DIR=runtime, MESHRT_RUNS=str(folder / "runs"))
        self._stop = folder / "stop"
        self.process: subprocess.Popen[str] | None = None

    def start(self, text: str, *words: str) -> subprocess.Popen[str]:
        path = self._folder / "program.py"
        path.write_text(text)
        pipe = subprocess.PIPE
        command = [sys.executable, str(path), str(self._stop), *words]
        self.process = subprocess.Popen(
            command,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )
        return self.process

    def meshrt(self, *words: str) -> str:
        command = [sys.executable, "-m", "meshrt", *words]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=_SECONDS).stdout

    def wait_for(self, text: str, *words: str) -> None:
        wait_until(lambda: text in self.meshrt(*words), _SECONDS, text)

    def ended(self) -> tuple[int, str, str]:
        """Have it end."""
        self._stop.touch()
        assert self.process is not None
        out, err = self.process.communicate(timeout=_SECONDS)
        return self.process.returncode, out, err

    def close(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
        wait_until(lambda: not os.listdir(self.runtime), _SECONDS, "the end of the program")


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as runtime:
        made = Joined(tmp_path, runtime)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.nightly
def test_a_process_alone(joined: Joined) -> None:
    joined.start(ALONE, "print('over', flush=True)")
    joined.wait_for("1: 1 running", "ps")
    assert "solo{n=1} solo" in joined.meshrt("ps")
    assert int(joined.meshrt("p", "solo", "total").removeprefix("[0] ")) > 0
    joined.meshrt("interrupt", "solo")
    assert "program.py" in joined.meshrt("list") or "| solo " in joined.meshrt("list")
    joined.meshrt("continue")
    assert joined.ended() == (0, "True\nover\n", "")


def test_a_process_that_has_joined_stays_the_rank_that_it_is(joined: Joined) -> None:
    """A cell of a notebook is run again."""
    joined.start(ALONE, "print(meshrt.join('other'), meshrt.join(mesh=4), flush=True)")
    joined.wait_for("1: 1 running", "ps")
    assert "solo{n=1} solo" in joined.meshrt("ps")
    assert joined.ended() == (0, "True\nTrue True\n", "")


def test_its_exception_is_reported_and_ends_it_as_ever(joined: Joined) -> None:
    process = joined.start(ALONE, "raise LookupError('no shard 7')")
    joined.wait_for("1: 1 running", "ps")
    status, out, err = joined.ended()
    assert (status, out) == (1, "True\n")
    traceback, _, report = err.partition("meshrt: FAILED")
    assert traceback.count("LookupError: no shard 7") == 1 and "spmd" not in traceback
    assert f"pid {process.pid}" in report and "LookupError: no shard 7" in report.partition("ROOT CAUSE")[2]


@pytest.mark.slow
@pytest.mark.parametrize("words", [["fork"], ["spawn"], ["fork", "without mesh="]], ids=["fork", "spawn", "its-size"])
def test_workers_of_a_pool(joined: Joined, words: list[str]) -> None:
    """The pool ends them by SIGTERM, which is no failure. A forked one knows how many there are."""
    joined.start(POOL, *words)
    joined.wait_for("3: 3 running", "ps")
    assert "worker{n=3} worker" in joined.meshrt("ps")
    names = joined.meshrt("p", "worker", "__import__('multiprocessing').current_process().name")
    assert sorted(line.partition("] ")[2][-3:] for line in names.splitlines()) == ["-1'", "-2'", "-3'"]
    assert joined.ended() == (0, "15\n", "")


@pytest.mark.slow
def test_a_worker_that_dies_is_reported(joined: Joined) -> None:
    joined.start(POOL, "fork")
    joined.wait_for("3: 3 running", "ps")
    rows = json.loads(joined.meshrt("ps", "-v", "--json"))["programs"][0]["rows"]
    os.kill(rows[1]["pid"], signal.SIGKILL)
    joined.wait_for("1 dead", "ps")
    assert joined.process is not None
    os.killpg(joined.process.pid, signal.SIGTERM)  # the pool does not end otherwise: it waits for the lost result
    _, err = joined.process.communicate(timeout=_SECONDS)
    assert "worker rank 1 (n=1)" in err and "was killed by SIGKILL" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("meshrt.join('a b')", "an actor is named with a letter"),
        ("meshrt.join(mesh=0)", "mesh=0: expected a number of processes"),
        ("meshrt.join(mesh={'n': 'x'})", "mesh={'n': 'x'}: expected a number of processes"),
        ("meshrt.join(mesh=2, rank=2)", "rank=2, but the number of ranks is 2; expected 0 to 1"),
        ("meshrt.proc_mesh(n=1); meshrt.join()", "this process already belongs to a program"),
        (
            "import threading; t = threading.Thread(target=lambda: meshrt.join()); t.start(); t.join()",
            "join() is for the main thread of a process",
        ),
    ],
)
def test_what_is_refused(call: str, why: str) -> None:
    done = run_python("-c", f"import meshrt\n{call}")
    assert f"UsageError: {why}" in done.stderr


def test_where_there_can_be_no_program_it_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = environment(MESHRT_RUNTIME_DIR=str(tmp_path / "file" / "r"))
    done = run_python("-c", "import meshrt; print(meshrt.join())", env=env)
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert "meshrt: this process has not joined: " in done.stderr

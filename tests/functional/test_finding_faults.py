"""docs/finding-faults.md: the faults of examples/faults.py are found by the lines that the page shows."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import ROOT, environment
from tests.support.waiting import wait_until

# Without loading it: that takes seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

_SECONDS = 90
SCRIPT = ROOT / "examples" / "faults.py"


class Job:
    """The script with one fault, on four ranks of this machine; a ``limit`` of the memory of each, bytes."""

    def __init__(self, fault: str, folder: Path, runtime: str, limit: int = 0) -> None:
        self._env = environment(
            MESHRT_RUNTIME_DIR=runtime, MESHRT_RUNS=str(folder / "runs"), TORCH_CPP_LOG_LEVEL="ERROR"
        )
        first = ["prlimit", f"--as={limit}"] if limit else []
        command = [*first, sys.executable, "-m", "meshrt", "run", "-n", "4", str(SCRIPT), "--fault", fault]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(command, env=self._env, stdin=null, stdout=null, stderr=pipe, text=True)

    def meshrt(self, *words: str) -> str:
        command = [sys.executable, "-m", "meshrt", *words]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=_SECONDS).stdout

    def says(self, text: str, *words: str) -> None:
        wait_until(lambda: text in self.meshrt(*words), _SECONDS, text)


def line_of(text: str) -> int:
    """Return the number of the line of the script that has this text."""
    return next(number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)


def run(fault: str, folder: Path, lines: list[str], command: str = "where", *, limit: int = 0) -> str:
    """Start the script, wait until the command says each of ``lines``, and end it. Returns its standard error."""
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as runtime:
        job = Job(fault, folder, runtime, limit)
        with job.process:
            try:
                for text in lines:
                    job.says(text, command)
            finally:
                if lines:
                    job.process.send_signal(signal.SIGTERM)
                _, err = job.process.communicate(timeout=_SECONDS)
    return err


@pytest.mark.parametrize(
    ("fault", "lines"),
    [
        pytest.param(
            "mismatch",
            ["ranks 0-1,3 in all_reduce, rank 2 in broadcast: a mismatch of collective #"],
            marks=pytest.mark.nightly,
        ),
        pytest.param("late", ["ranks 0-1,3 wait for rank 2 to enter all_reduce #"], marks=pytest.mark.nightly),
        pytest.param("lock", ["in with self.cache_lock\n", "in with self.stats_lock\n"], marks=pytest.mark.nightly),
        pytest.param("slow", ["  likely culprits: 2 ("], marks=pytest.mark.nightly),
    ],
)
def test_a_rank_that_keeps_the_others_waiting(fault: str, lines: list[str], tmp_path: Path) -> None:
    run(fault, tmp_path, lines)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("exception", "mat1 and mat2 shapes cannot be multiplied (64x255 and 256x1)"),
        ("kill", "was killed by SIGKILL"),
        ("segv", "was killed by SIGSEGV"),
    ],
)
def test_a_rank_that_ends(fault: str, cause: str, tmp_path: Path) -> None:
    root = run(fault, tmp_path, []).partition("ROOT CAUSE  main rank 2 (")[2]
    assert cause in root
    assert fault != "exception" or "output = model(batch)" in root


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit is not installed")
def test_a_rank_that_runs_out_of_memory(tmp_path: Path) -> None:
    root = run("memory", tmp_path, [], limit=3_000_000 << 10).partition("ROOT CAUSE  main rank 2 (")[2]
    assert "can't allocate memory" in root and "history.append(" in root


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    """The script with the fault that the test names, which runs until the end of the test."""
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as runtime:
        made = Job(request.param, tmp_path, runtime)
        with made.process:
            try:
                yield made
            finally:
                made.process.send_signal(signal.SIGTERM)
                made.process.communicate(timeout=_SECONDS)


@pytest.mark.nightly
@pytest.mark.parametrize("job", ["memory"], indirect=True)
def test_the_variable_that_grows(job: Job) -> None:
    job.says("breakpoint 1 ", "break", "main", f"faults.py:{line_of('history.append(')}, len(history) > 20")
    assert "stopped: rank 2" in job.meshrt("wait", "main", "ranks(2)", "60")
    assert "train() history " in job.meshrt("vars", "-n", "1", "main", "ranks(2)")


@pytest.mark.nightly
@pytest.mark.parametrize("job", ["nan"], indirect=True)
def test_the_file_with_a_nan(job: Job) -> None:
    where = f"faults.py:{line_of('output = model(batch)')}"
    job.says("breakpoint 1 ", "break", "main", f"{where}, not batch.isfinite().all()")
    assert "stopped: rank 2" in job.meshrt("wait", "main", "ranks(2)", "60")
    assert "'shard-2-20'" in job.meshrt("cast", "main", "ranks(2)", "p loader.files[step % 40]")

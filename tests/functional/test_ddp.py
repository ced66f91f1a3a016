"""Scripts of torch.distributed under a real ``torchrun``, as they are: hangs, failures, and that nothing differs."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.programs import ROOT, environment
from tests.support.waiting import wait_until

# Without loading it: that takes seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

_SECONDS = 90
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=4")
#: Which has its ranks started by torchrun's library, if it is told that there are several GPUs.
ACCELERATE = (
    "accelerate.commands.launch", "--multi_gpu", "--num_machines=1", "--num_processes=4", "--main_process_port=0",
    "--mixed_precision=no", "--dynamo_backend=no",
)  # fmt: skip
FAILING = """\
import ctypes, os, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for batch in range(6):
    loss = torch.ones(1) * rank
    if rank == 2 and batch == 4:
        exec(sys.argv[1])
    dist.all_reduce(loss)
os.write(1, f"trained {rank} {loss.item()}\\n".encode())  # in one piece: the ranks have one output
dist.destroy_process_group()
"""


class Torchrun:
    """A job of four ranks, with a runtime directory of its own."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self._folder = folder
        self._env = environment(
            MESHRT_RUNTIME_DIR=runtime,
            MESHRT_RUNS=str(folder / "runs"),
            OMP_NUM_THREADS="1",
            TORCH_CPP_LOG_LEVEL="ERROR",
        )

    def start(self, *words: str, launcher: Sequence[str] = TORCHRUN) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", *launcher, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self._env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, launcher: Sequence[str] = TORCHRUN) -> tuple[int, str, str]:
        with self.start(*words, launcher=launcher) as process:
            out, err = process.communicate(timeout=_SECONDS)
            return process.returncode, out, err

    def meshrt(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "meshrt", *words], env=self._env, capture_output=True, text=True, timeout=_SECONDS
        )
        return done.stdout

    def script(self, text: str) -> str:
        path = self._folder / "train.py"
        path.write_text(text)
        return str(path)


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[Torchrun]:
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as runtime:
        yield Torchrun(tmp_path, runtime)


@pytest.mark.nightly
def test_a_hang_is_found_with_the_tools_alone(torchrun: Torchrun) -> None:
    """The example: two ranks wait for gradients, and two, which have less to do, have gone on to the barrier."""
    with torchrun.start("-m", "meshrt", "run", str(ROOT / "examples" / "ddp.py")) as process:
        try:
            wait_until(lambda: torchrun.meshrt("where").count(" blocked ") == 2, _SECONDS, "a hang")
            where = torchrun.meshrt("where")
            assert where.count("  2/4  ") == 2 and "barrier" in where and "backward" in where, where
            assert torchrun.meshrt("p", "main", "SAMPLES") == "[0-3] 42\n"
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=_SECONDS)
        assert "meshrt: FAILED" not in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param("raise ValueError('bad batch')", "ValueError: bad batch"),
        pytest.param("sys.exit(3)", "exited with code 3", marks=pytest.mark.nightly),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL", marks=pytest.mark.nightly),
        pytest.param("ctypes.string_at(0)", "was killed by SIGSEGV", marks=pytest.mark.nightly),
    ],
)
def test_the_root_cause_is_named_by_both(code: str, said: str, torchrun: Torchrun) -> None:
    """Though its victims fail as well: their peer has closed its connections."""
    status, out, err = torchrun.run("-m", "meshrt", "run", torchrun.script(FAILING), code)
    assert (status, out) == (1, ""), err
    report = err[err.index("meshrt: FAILED") :]
    cause = report.partition("ROOT CAUSE")[2].partition("=====")[0]
    assert re.search(r"main rank 2 |rank 2 \(", cause) and said in cause, err
    summary = err.partition("Root Cause (first observed failure):")[2]
    assert re.search(r"rank +: 2 ", summary), err


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
@pytest.mark.parametrize(("code", "status"), [("pass", 0), ("raise ValueError('bad batch')", 1)])
def test_ranks_of_accelerate(code: str, status: int, torchrun: Torchrun) -> None:
    ended = torchrun.run("-m", "meshrt", "run", torchrun.script(FAILING), code, launcher=ACCELERATE)
    assert ended[0] == status, ended[2]
    if not status:
        assert sorted(ended[1].splitlines()) == [f"trained {rank} 6.0" for rank in range(4)]
        return
    report = ended[2][ended[2].index("meshrt: FAILED") :]
    cause = report.partition("ROOT CAUSE")[2].partition("=====")[0]
    assert "main rank 2 " in cause and "ValueError: bad batch" in cause, ended[2]


@pytest.mark.nightly
def test_nothing_differs_from_torchrun_alone(torchrun: Torchrun) -> None:
    text = FAILING + "os.write(1, f'{[rank, sys.argv, sys.path[0], __name__, __file__]}\\n'.encode())\n"
    script = torchrun.script(text)
    status, plain, _ = torchrun.run(script, "pass", "--lr", "1")
    joined = torchrun.run("-m", "meshrt", "run", script, "pass", "--lr", "1")
    assert status == joined[0] == 0, joined
    assert sorted(joined[1].splitlines()) == sorted(plain.splitlines())


@pytest.mark.nightly
def test_a_restart_is_a_program_of_its_own(torchrun: Torchrun) -> None:
    script = """
import os, time
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
if attempt == "0":
    if rank == "2":
        raise ValueError("bad batch")
    time.sleep(60)
print(f"trained {rank} {attempt}", flush=True)
"""
    status, out, err = torchrun.run("--max-restarts=1", "-m", "meshrt", "run", torchrun.script(script))
    assert status == 0, err
    assert sorted(out.splitlines()) == [f"trained {rank} 1" for rank in range(4)]
    assert err.count("meshrt: FAILED 1 of 4 ranks") == 1

"""Hangs in collectives of a real torch.distributed: where names the collective, and who is late or in another one."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

# Without loading it: that takes seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

_SECONDS = 90
#: Each part is passed when a file is made; the last one is never passed.
SCRIPT = """\
import os, sys, time
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank, ones = dist.get_rank(), torch.ones(4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
dist.new_group([1, 3], group_desc="experts")

def until(name):
    while not os.path.exists(os.path.join(sys.argv[1], name)):
        time.sleep(0.01)

dist.all_reduce(ones, group=dp)
if rank == 2:
    until("late")
dist.all_reduce(ones, group=dp)
if rank == 3:
    until("started")
dist.all_reduce(ones, group=tp, async_op=True).wait()
if rank == 2:
    dist.broadcast(ones, 0)
else:
    dist.all_reduce(ones)
"""


@dataclass
class Job:
    """A script that `meshrt run` runs."""

    program: subprocess.Popen[str]
    env: dict[str, str]

    def meshrt(self, *words: str) -> str:
        """Return what a command prints."""
        command = [sys.executable, "-m", "meshrt", *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=_SECONDS).stdout

    def end(self) -> str:
        """Send SIGTERM, unless it has ended; returns its standard error."""
        if self.program.poll() is None:
            self.program.send_signal(signal.SIGTERM)
        return self.program.communicate(timeout=_SECONDS)[1]


@contextmanager
def running(tmp_path: Path, code: str, *words: str) -> Iterator[Job]:
    """Run a script with ``meshrt run WORDS``, in which ``train.py`` is that script."""
    path = tmp_path / "train.py"
    path.write_text(code)
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as runtime:
        env = environment(MESHRT_RUNTIME_DIR=runtime, MESHRT_RUNS=str(tmp_path / "runs"), TORCH_CPP_LOG_LEVEL="ERROR")
        command = [sys.executable, "-m", "meshrt", "run", *(str(path) if word == path.name else word for word in words)]
        with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
            try:
                yield Job(program, env)
            finally:
                program.kill()


def waits_are(waits: Callable[[], list[dict[str, Any]]], text: str) -> None:
    """Wait until `where` says so."""
    wait_until(lambda: any(text in each["text"] for each in waits()), _SECONDS, text)


@pytest.mark.slow
def test_who_is_late_and_who_is_in_another_collective(tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT, "-n", "4", "train.py", str(tmp_path)) as job:

        def waits() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = json.loads(job.meshrt("where", "--json")).get("waits", [])
            return found

        waits_are(waits, "rank 0 waits for rank 2 to enter all_reduce #2 of dp, ")
        assert job.meshrt("p", "main", "ranks(dp=1, tp=0)", "rank") == "[2] 2\n"  # as the device mesh names them
        assert job.meshrt("p", "main", "ranks(in tp & !in experts)", "rank") == "[0] 0\n[2] 2\n"
        (tmp_path / "late").touch()
        waits_are(waits, "rank 2 waits for rank 3 to enter all_reduce #1 of tp, ")
        assert "in all_reduce #1 of tp\n" in job.meshrt("where")
        (tmp_path / "started").touch()
        mismatch = "ranks 0-1,3 in all_reduce, rank 2 in broadcast: a mismatch of collective #1 of default_pg"
        waits_are(waits, mismatch)
        wait_until(lambda: mismatch in job.meshrt("ps"), _SECONDS, "what ranks report by themselves")
        err = job.end()
        assert "unknown event" not in err
        assert "collective #1 of default_pg is not the same on all ranks" in err, err
        root = job.meshrt("postmortem").partition("ROOT CAUSE")[2]
        assert root.lstrip().startswith("collective #1 of default_pg is not the same on all ranks"), root
        assert "[certain: " in root.partition("\n")[0]


@pytest.mark.slow
def test_a_mesh_of_all_ranks_names_their_dimension(tmp_path: Path) -> None:
    """Though its group is the default one."""
    code = (
        "import time\nimport torch, torch.distributed as dist\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "mesh = init_device_mesh('cpu', (2,), mesh_dim_names=('dp',))\n"
        "rank, ones = dist.get_rank(), torch.ones(4)\n"
        "while rank == 1:\n    time.sleep(0.01)\n"
        "dist.all_reduce(ones, group=mesh.get_group())\n"
    )
    with running(tmp_path, code, "-n", "2", "train.py") as job:
        wait_until(lambda: "to enter all_reduce #1 of dp" in job.meshrt("where"), _SECONDS, "a hang")
        assert "  1 (dp=1)  " in job.meshrt("where")
        assert job.meshrt("p", "main", "ranks(dp=1)", "rank") == "[1] 1\n"
        assert job.meshrt("p", "main", "ranks(in dp)", "rank") == "[0] 0\n[1] 1\n"
        job.meshrt("interrupt", "main", "ranks(dp=1)")
        assert job.meshrt("cast", "main", "ranks(dp=1)", "p rank") == "[1] 1\n"
        job.end()


@pytest.mark.nightly
def test_the_root_cause_of_a_time_out_is_the_rank_that_is_late(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time\nfrom datetime import timedelta\nimport torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', timeout=timedelta(seconds=4))\n"
        "for step in range(3):\n"
        "    if dist.get_rank() == 2 and step == 2:\n        time.sleep(60)\n"
        "    dist.all_reduce(torch.ones(4))\n"
    )
    done = run_python("-m", "meshrt", "run", "-n", "4", str(tmp_path / "train.py"), seconds=_SECONDS)
    assert done.returncode == 1
    root = done.stderr.partition("ROOT CAUSE")[2]
    late = "main rank 2 has not entered collective #3 of default_pg, in which others have failed  [certain: "
    assert root.strip().startswith(late) and "Timed out waiting 4000ms" in root
    assert "in time.sleep" in root


@pytest.mark.slow
def test_the_time_out_of_a_data_loader_is_said_where_it_runs_on(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\nfrom torch.utils.data import DataLoader\n"
        "class Slow(list):\n"
        "    def __getitem__(self, index):\n"
        "        while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "        return index\n"
        "for batch in DataLoader(Slow([1, 2]), num_workers=1, timeout=300):\n    pass\n"
    )
    stop = tmp_path / "stop"
    with running(tmp_path, code, "train.py", str(stop)) as job:
        wait_until(lambda: "_get_data" in job.meshrt("where", "-v"), _SECONDS, "it waits for a batch")
        job.meshrt("interrupt", "main")
        shown = job.meshrt("debug", "-c", "attach main 0", "-c", "detach")
        line = "DataLoader: its time-out of 5 min 0 s began before the stop; meshrt does not suspend it"
        assert line in shown
        job.meshrt("continue")
        stop.touch()
        job.program.communicate(timeout=_SECONDS)
    assert job.program.returncode == 0

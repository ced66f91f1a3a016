"""``meshrt run`` in processes that a launcher has started on two machines: one program has all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster.machines import Machine, machines
from tests.support.waiting import wait_until

SCRIPT = Path(__file__).with_name("joined_script.py")
_SECONDS = 60


@dataclass
class Job:
    """Two ranks on each machine, which know of each other what launchers say."""

    machines: list[Machine]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *words: str) -> None:
        for machine in self.machines:
            done = machine.run("sh", "-c", "umask 077; echo 0123456789abcdef > /tmp/secret; rm -f /tmp/stop")
            assert done.returncode == 0, done.stderr
        for rank in range(4):
            machine = self.machines[rank // 2]
            env = machine.environment(
                RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2", MASTER_ADDR="n1",
                MASTER_PORT="29500", MESHRT_ROOT="n1:40000", MESHRT_SECRET_FILE="/tmp/secret",
            )  # fmt: skip
            command = [sys.executable, "-m", "meshrt", "run", str(SCRIPT), *words]
            pipe = subprocess.PIPE
            self.processes.append(machine.start(*command, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe))

    def meshrt(self, *words: str, fails: bool = False) -> str:
        """Run a command on the first machine."""
        done = self.machines[0].run(sys.executable, "-m", "meshrt", *words)
        assert fails or done.returncode == 0, done
        return str(done.stdout)

    def ended(self) -> list[tuple[int, str, str]]:
        for machine in self.machines:
            machine.run("touch", "/tmp/stop")
        said = [process.communicate(timeout=_SECONDS) for process in self.processes]
        return [
            (process.returncode, out.decode(), err.decode())
            for process, (out, err) in zip(self.processes, said, strict=True)
        ]


@pytest.fixture
def job() -> Iterator[Job]:
    with machines(2) as made:
        found = Job(made)
        yield found
    for process in found.processes:  # what has run there has ended with the machines
        process.communicate()


@pytest.mark.slow
def test_the_tools_see_the_ranks_of_both(job: Job) -> None:
    job.start()
    wait_until(lambda: "run{hosts=2,gpus=2} main" in job.meshrt("ps", fails=True), _SECONDS, "all have joined")
    wait_until(lambda: job.meshrt("p", "main", "rank", fails=True).count("\n") == 4, _SECONDS, "all have begun")
    assert job.meshrt("p", "main", "ranks(hosts=1)", "rank * 10") == "[2] 20\n[3] 30\n"
    where = job.meshrt("where")
    assert "4 ranks of run\n" in where and "cluster/joined_script.py:" in where
    job.meshrt("interrupt", "main", "ranks(1,3)")
    job.meshrt("wait", "main", "ranks(1,3)", "30")
    listed = job.meshrt("list")
    assert listed.count("| main ") == 2 and "| n1 " in listed and "| n2 " in listed
    job.meshrt("continue")
    assert [each[:2] for each in job.ended()] == [(0, f"trained {rank}\n") for rank in range(4)]


@pytest.mark.slow
def test_the_report_is_about_all_of_them(job: Job) -> None:
    job.start("3")
    ended = job.ended()
    assert [status for status, _, _ in ended] == [0, 0, 0, 1]
    assert "ValueError: bad batch" in ended[3][2]
    report = ended[0][2]
    assert "FAILED 1 of 4 ranks of run (hosts=2, gpus=2)" in report
    assert "ROOT CAUSE  main rank 3 (hosts=1, gpus=1) on n2" in report

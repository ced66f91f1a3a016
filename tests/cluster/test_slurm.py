"""``meshrt launch`` and ``meshrt run`` as tasks of a real SLURM."""

from __future__ import annotations

import contextlib
import functools
import signal
import subprocess
import time

import pytest

from tests.cluster.joined_jobs import check_failure, check_look
from tests.cluster.launched import EXAMPLE, EXAMPLE_SAYS, RANKS, TRAIN, Launched, fixtures, launched
from tests.cluster.slurm import CONFIGURATION, slurm, why_no_slurm
from tests.support.programs import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm())

SRUN = ("srun", "-N2", "--ntasks-per-node=1", "meshrt", "launch", TRAIN)


_cluster, cluster, own_cluster = fixtures(functools.partial(launched, slurm, SLURM_CONF=CONFIGURATION))


def jobs(cluster: Launched) -> list[str]:
    return cluster.run("squeue", "--noheader", "--format", "%i").stdout.split()


@pytest.mark.parametrize("on", [0, 1])
def test_a_script_has_the_nodes_as_its_hosts(cluster: Launched, on: int) -> None:
    """Wherever srun is started, the script runs on the first node."""
    done = cluster.run(*SRUN, "calls", "--some", "words", on=on)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *RANKS,
        "rank 0 has asked 0 on n2 1 on n2",
        "the script is on n1 with ['--some', 'words']",
        "MPI is loaded: False",
    ]
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_without_sizes_there_is_a_rank_for_each_gpu_that_slurm_gives(cluster: Launched) -> None:
    done = cluster.run("srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2", *SRUN[3:], "gpus")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:4] == RANKS
    done = cluster.run("srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=1", *SRUN[3:], "gpus")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["rank 0 is on n1", "rank 1 is on n2"]
    cluster.wait_until_empty()


def test_the_example(cluster: Launched) -> None:
    """Without sizes: where there are no GPUs, a rank on each host."""
    done = cluster.run(*SRUN[:-1], EXAMPLE, "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == EXAMPLE_SAYS
    cluster.wait_until_empty()


def test_the_exit_status_of_the_script_is_that_of_srun(cluster: Launched) -> None:
    done = cluster.run(*SRUN, "exit", "7")
    assert done.returncode == 7, done.stderr
    cluster.wait_until_empty()
    done = cluster.run(*SRUN, "raise")
    assert done.returncode == 1 and "ValueError: as asked" in done.stderr
    assert "n1: task 0: Exited with exit code 1" in done.stderr and "n2: task 1" not in done.stderr
    cluster.wait_until_empty()


def test_a_rank_that_dies_fails_the_script(cluster: Launched) -> None:
    done = cluster.run(*SRUN, "die")
    assert done.returncode == 1 and "trainer" in done.stderr and "n2" in done.stderr
    cluster.wait_until_empty()


def test_ctrl_c_ends_everything(cluster: Launched) -> None:
    program = cluster.start_that_hangs(*SRUN, "hang")
    # srun tells the state of the tasks at the first one, and ends them at a second one within a second. Two that come
    # before it has handled the first one are one.
    deadline = time.monotonic() + 60
    while program.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(AssertionError, ProcessLookupError):  # it has ended
            cluster.signal("srun", signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(0.3)
    program.communicate(timeout=10)
    cluster.wait_until_empty()


def test_scancel_ends_everything(cluster: Launched) -> None:
    program = cluster.start_that_hangs(*SRUN, "hang")
    (job,) = jobs(cluster)
    cluster.run("scancel", job)
    _, err = program.communicate(timeout=60)
    assert program.returncode != 0 and "CANCELLED" in err
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_the_tools_look_at_it_from_another_machine_by_srun(cluster: Launched) -> None:
    cluster.start_that_hangs(*SRUN, "hang")
    (job,) = jobs(cluster)
    # Without --unbuffered, SLURM keeps what is no whole line.
    via = f"srun --overlap --unbuffered --jobid={job} --nodes=1 --ntasks=1 --nodelist=n1"
    done = cluster.run("meshrt", "where", "--via", via, on=1)
    assert done.returncode == 0 and "4/4" in done.stdout and "cluster/train.py" in done.stdout
    done = cluster.run("meshrt", "p", "trainer", "os.uname().nodename", "--via", via, on=1)
    assert "n1" in done.stdout and "n2" in done.stdout
    cluster.run("scancel", job)
    cluster.wait_until_empty()


def test_two_tasks_on_a_node_are_refused(cluster: Launched) -> None:
    done = cluster.run("srun", "-N2", "--ntasks-per-node=2", *SRUN[3:], "calls")
    assert done.returncode == 2
    assert "SLURM has started 2 processes on a host" in done.stderr
    assert "use srun --ntasks-per-node=1" in done.stderr
    cluster.wait_until_empty()


def test_one_node_is_one_host(cluster: Launched) -> None:
    done = cluster.run("srun", "-N1", *SRUN[2:], "calls")
    assert done.returncode == 1 and "hosts=2, but the number of hosts is 1 (SLURM)" in done.stderr
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_a_batch_script_runs_it(cluster: Launched) -> None:
    script = ROOT / "examples" / "slurm" / "train.sbatch"
    cluster.shared("train.py").write_text(f"import runpy\nrunpy.run_path({TRAIN!r}, run_name='__main__')\n")
    words = ["--nodes=2", "--gpus-per-node=2", "--chdir=/tmp/shared", "--output=/tmp/shared/train-%j.log", str(script)]
    for more, status in (["gpus"], "0:0"), (["exit", "7"], "7:0"):
        job = cluster.run("sbatch", *words, *more).stdout.split()[-1]
        wait_until(lambda: not jobs(cluster), 60, "the job does not end")
        log = cluster.shared(f"train-{job}.log").read_text()
        assert f"ExitCode={status}" in cluster.run("scontrol", "show", "job", job).stdout, log
        assert [line for line in log.splitlines() if line.startswith("rank")][:4] == RANKS
    cluster.wait_until_empty()


def test_outside_of_a_step_it_says_how_it_is_used(cluster: Launched) -> None:
    """A batch script that forgets srun: it runs on the first node alone."""
    done = cluster.run("salloc", "-N2", *SRUN[3:], "calls")
    assert done.returncode == 2
    assert "use srun --ntasks-per-node=1 meshrt launch" in done.stderr
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_a_node_that_loses_power_ends_the_job(own_cluster: Launched) -> None:
    program = own_cluster.start_that_hangs(*SRUN, "hang")
    begun = time.monotonic()
    own_cluster.machines[1].power_off()
    _, err = program.communicate(timeout=90)
    took = time.monotonic() - begun
    assert program.returncode != 0
    assert "HostLost" in err and "n2" in err, err
    assert took < 60
    wait_until(lambda: "n1" not in own_cluster.left(), 20, "processes are left on the first node")


@pytest.mark.slow
@pytest.mark.parametrize("machines", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_ranks_that_srun_has_started_are_seen(machines: int, cluster: Launched) -> None:
    check_look(cluster, "srun", f"-N{machines}", "--ntasks-per-node=2", ranks=2 * machines)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("machines", "cause"), [(1, "rank 1 (hosts=0, gpus=1) on n1"), (2, "rank 3 (hosts=1, gpus=1) on n2")]
)
def test_the_rank_that_fails_is_the_root_cause(machines: int, cause: str, cluster: Launched) -> None:
    words = ("srun", f"-N{machines}", "--ntasks-per-node=2", "--kill-on-bad-exit")
    # The status of srun is the highest one of its tasks: those that it has ended have 128 + SIGTERM.
    err = check_failure(cluster, *words, cause=cause, status=128 + signal.SIGTERM)
    assert f"task {2 * machines - 1}: Exited with exit code 1" in err

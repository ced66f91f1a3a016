"""``meshrt launch`` and ``meshrt run`` under a real ``mpirun`` of Open MPI, which starts its daemons by ssh."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
from collections.abc import Sequence

import pytest

from tests.cluster.joined_jobs import check_failure, check_look
from tests.cluster.launched import EXAMPLE, EXAMPLE_SAYS, RANKS, TRAIN, Launched, fixtures, launched
from tests.cluster.sshd import CLIENT, sshd, why_no_ssh
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(bool(why_no_ssh()), reason=why_no_ssh()),
    pytest.mark.skipif(
        shutil.which("mpirun") is None, reason="Open MPI is not installed (Debian: apt-get install openmpi-bin)"
    ),
]

#: Open MPI wants to be told twice that root is meant.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_plm_rsh_agent": " ".join(["ssh", *CLIENT]),
}
#: What ssh does not take along. A user's own are the same everywhere.
_TAKEN = [word for name in ("PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "HOME") for word in ("-x", name)]
MPIRUN = ("mpirun", *_TAKEN, "--host", "n1,n2", "--map-by", "ppr:1:node", "meshrt", "launch", TRAIN)


_cluster, cluster, own_cluster = fixtures(functools.partial(launched, sshd, **SETTINGS))


def test_a_script_has_the_machines_as_its_hosts(cluster: Launched) -> None:
    """And no process of it has loaded MPI: some versions crash when a process that has done so forks."""
    done = cluster.run(*MPIRUN, "calls", "--some", "words")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *RANKS,
        "rank 0 has asked 0 on n2 1 on n2",
        "the script is on n1 with ['--some', 'words']",
        "MPI is loaded: False",
    ]
    cluster.wait_until_empty()


def test_the_script_may_run_on_another_machine_than_mpirun(cluster: Launched) -> None:
    cluster.shared("ranks").write_text("rank 0=n2 slot=0\nrank 1=n1 slot=0\n")
    words = [*MPIRUN[: MPIRUN.index("--map-by")], "--rankfile", "/tmp/shared/ranks", *MPIRUN[MPIRUN.index("meshrt") :]]
    done = cluster.run(*words, "calls")
    assert done.returncode == 0, done.stderr
    assert "the script is on n2" in done.stdout


def test_the_example(cluster: Launched) -> None:
    """Without sizes: where there are no GPUs, a rank on each host."""
    done = cluster.run(*MPIRUN[:-1], EXAMPLE, "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == EXAMPLE_SAYS
    cluster.wait_until_empty()


@pytest.mark.slow
def test_the_exit_status_of_the_script_is_that_of_mpirun(cluster: Launched) -> None:
    done = cluster.run(*MPIRUN, "exit", "7")
    assert done.returncode == 7, done.stderr
    cluster.wait_until_empty()
    done = cluster.run(*MPIRUN, "raise")
    assert done.returncode == 1 and "ValueError: as asked" in done.stderr
    cluster.wait_until_empty()


def test_a_rank_that_dies_fails_the_script(cluster: Launched) -> None:
    done = cluster.run(*MPIRUN, "die")
    assert done.returncode == 1 and "trainer" in done.stderr and "n2" in done.stderr
    cluster.wait_until_empty()


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_mpirun_ends_everything(cluster: Launched, number: int) -> None:
    program = cluster.start_that_hangs(*MPIRUN, "hang")
    cluster.signal("mpirun", number)
    program.communicate(timeout=60)
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_a_killed_mpirun_leaves_nothing(cluster: Launched) -> None:
    program = cluster.start_that_hangs(*MPIRUN, "hang")
    cluster.signal("mpirun", signal.SIGKILL)
    program.communicate(timeout=60)
    cluster.wait_until_empty()


def test_two_processes_on_a_machine_are_refused(cluster: Launched) -> None:
    words = [word if word != "n1,n2" else "n1:2,n2:2" for word in MPIRUN]
    words[words.index("ppr:1:node")] = "ppr:2:node"
    done = cluster.run(*words, "calls")
    assert done.returncode == 2
    assert "Open MPI has started 2 processes on a host" in done.stderr
    assert "use mpirun --map-by ppr:1:node" in done.stderr
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_ranks_have_all_processors(cluster: Launched) -> None:
    """Open MPI binds its processes, by default to one core each; what a user asks for is kept."""
    done = cluster.run(*MPIRUN, "processors")
    assert f"processors {[os.cpu_count()] * 4}" in done.stdout, done.stderr
    done = cluster.run("mpirun", "--bind-to", "core", *MPIRUN[1:], "processors")
    assert "processors [1, 1, 1, 1]" in done.stdout, done.stderr
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_a_machine_that_loses_power_is_lost_to_the_script(own_cluster: Launched) -> None:
    """mpirun itself does not notice it for 8 minutes and more: it waits for its daemon there."""
    program = own_cluster.start_that_hangs(*MPIRUN, "hang")
    own_cluster.machines[1].power_off()
    assert program.stderr is not None
    assert any("HostLost" in line for line in program.stderr)
    wait_until(lambda: sys.executable not in str(own_cluster.left()), 20, "ranks, or the script, are left")


@pytest.mark.nightly
def test_a_machine_that_loses_power_ends_the_job_of_an_mpirun_that_looks(own_cluster: Launched) -> None:
    keepalive = {"time": "3", "intvl": "1", "probes": "3"}
    settings = [word for name, value in keepalive.items() for word in ("--mca", f"oob_tcp_keepalive_{name}", value)]
    program = own_cluster.start_that_hangs("mpirun", *settings, *MPIRUN[1:], "hang")
    own_cluster.machines[1].power_off()
    _, err = program.communicate(timeout=60)
    assert program.returncode != 0 and "on node n2" in err, err
    wait_until(lambda: "n1" not in own_cluster.left(), 20, "processes are left on the first machine")


#: As each rank: two on the first machine, or two on each.
ONE_MACHINE = ("mpirun", *_TAKEN, "-x", "STOP", "--host", "n1:2", "-n", "2")
TWO_MACHINES = ("mpirun", *_TAKEN, "-x", "STOP", "--host", "n1:2,n2:2", "--map-by", "slot", "-n", "4")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "ranks"), [(ONE_MACHINE, 2), pytest.param(TWO_MACHINES, 4, marks=pytest.mark.nightly)]
)
def test_ranks_that_mpirun_has_started_are_seen(launcher: Sequence[str], ranks: int, cluster: Launched) -> None:
    check_look(cluster, *launcher, ranks=ranks)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("launcher", "cause"),
    [(ONE_MACHINE, "rank 1 (hosts=0, gpus=1) on n1"), (TWO_MACHINES, "rank 3 (hosts=1, gpus=1) on n2")],
)
def test_the_rank_that_fails_is_the_root_cause(launcher: Sequence[str], cause: str, cluster: Launched) -> None:
    err = check_failure(cluster, *launcher, cause=cause)
    assert "mpirun detected that one or more processes exited with non-zero status" in " ".join(err.split())

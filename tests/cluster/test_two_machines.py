"""A script with its hosts on two machines: calls, tools, and what is lost."""

from __future__ import annotations

import json
import time

import pytest

from tests.cluster.conftest import PROGRAM, Cluster
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

#: Arrays of 3 MB: results, arguments of the script, and arguments of ranks, to the other machine and on one.
ARRAYS = [
    "arrays {21000000}",
    "totals {3000000}",
    "passed on [[3000000, 3000000], [3000000, 3000000]]",
    "in a host [3000000]",
]


@pytest.mark.slow
def test_calls_go_from_machine_to_machine(cluster: Cluster) -> None:
    done = cluster.start("calls")
    out, err = done.communicate(timeout=100)
    assert done.returncode == 0, err
    lines = [line for line in out.splitlines() if "from a rank" not in line]
    assert lines == [
        "places ['n1', 'n2']",
        "asked ['n2', 'n2']",
        "lengths {5000000}",
        *ARRAYS,
        "own 3",
        "failed True True",
    ]
    assert out.count("from a rank") == 4


@pytest.mark.slow
def test_two_agents_of_one_machine_have_files_of_their_own(cluster: Cluster) -> None:
    """As have those of two machines that share a file system."""
    first, second = json.loads(cluster.environment["AGENTS"])
    agents = json.loads(cluster.environment["AGENTS"])
    done = cluster.start("calls", agents={first: agents[first], second: agents[first]})
    out, err = done.communicate(timeout=100)
    assert (done.returncode, err) == (0, "")
    assert "places ['n1']" in out and "asked ['n1', 'n1']" in out


@pytest.mark.slow
def test_tools_look_at_ranks_of_both(cluster: Cluster) -> None:
    program = cluster.start("stop")
    wait_until(lambda: cluster.meshrt("list", fails=True).count("| worker ") == 4, 60, "four stopped ranks")
    assert f"4/4  all  stop_here  cluster/{PROGRAM.name}:{marked_line(str(PROGRAM), 'stop')}" in cluster.meshrt("where")
    assert cluster.meshrt("p", "worker", "value + 1") == "[0-3] 8\n"
    assert cluster.meshrt("memory", "worker").count(" n2 ") == 2
    cluster.meshrt("continue")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, "values [7, 7, 7, 7]" in out) == (0, True), err


@pytest.mark.slow
@pytest.mark.row("H1")
def test_a_machine_that_is_cut_off_is_lost_and_has_ended_its_ranks_before(cluster: Cluster) -> None:
    program = cluster.start("loss")
    assert program.stdout is not None
    assert program.stdout.readline() == "hangs\n"
    _, second = cluster.machines
    second.cut()
    begun = time.monotonic()
    wait_until(lambda: not second.processes(), 30, "the ranks of a machine that is cut off")
    fenced = time.monotonic() - begun
    out, err = program.communicate(timeout=60)
    assert "HostLost" in out and "on n2" in out and "has not answered for 10 s" in out, out + err
    assert fenced < float(out.partition("lost after ")[2].split()[0])


@pytest.mark.slow
@pytest.mark.row("H2")
def test_a_machine_without_power_is_lost(cluster: Cluster) -> None:
    program = cluster.start("loss")
    assert program.stdout is not None
    assert program.stdout.readline() == "hangs\n"
    cluster.machines[1].end_processes()
    out, _ = program.communicate(timeout=60)
    assert "HostLost" in out and "on n2" in out


def test_nothing_is_left_of_a_script_that_is_killed(cluster: Cluster) -> None:
    program = cluster.start("loss")
    assert program.stdout is not None
    assert program.stdout.readline() == "hangs\n"
    program.kill()
    program.communicate()
    wait_until(cluster.is_empty, 20, "processes of the ranks")

"""What a machine has, and what happens when it is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.machines import machines


@pytest.fixture
def three() -> Iterator[Cluster]:
    """Three machines of which the test may destroy some."""
    with machines(3) as made:
        cluster = Cluster(made)
        yield cluster
        for program in cluster.programs:
            program.kill()
            program.communicate()


PLACING = Path(__file__).with_name("placing.py")


@pytest.mark.slow
def test_limits_and_gpus_are_those_of_each_machine(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = cluster.machines
    few = ["prlimit", "--nofile=150:150", "env", "HOME=/tmp/home", "CUDA_VISIBLE_DEVICES=6,7"]
    agents = {
        first.name: first.command("env", "HOME=/tmp/home", "CUDA_VISIBLE_DEVICES=GPU-a,MIG-b,MIG-c"),
        second.name: second.command(*few),
    }
    monkeypatch.setitem(cluster.environment, "AGENTS", json.dumps(agents))
    done = cluster.start("limits", program=PLACING)
    out, err = done.communicate(timeout=100)
    assert done.returncode == 0, out + err
    gpus, own, every, files, devices, own_devices = out.splitlines()
    assert gpus == "gpus ['MIG-b', '7']"
    assert own == "own ['GPU-a', 'MIG-b', '6', '7']" and every == f"all {['GPU-a,MIG-b,MIG-c'] * 2 + ['6,7'] * 2}"
    assert (
        "host n2: " in files and "20 ranks need about" in files and "the limit is 150: raise it (ulimit -Hn)" in files
    )
    for refused in (devices, own_devices):
        assert "host n2: " in refused and "GPU 2 was requested, but the host has 2: CUDA_VISIBLE_DEVICES=6,7" in refused


@pytest.mark.slow
def test_sizes_that_two_machines_do_not_fit(cluster: Cluster) -> None:
    program = cluster.start("sizes", program=PLACING)
    out, err = program.communicate(timeout=100)
    assert program.returncode == 0, out + err
    uneven, many, *fit = out.splitlines()
    assert uneven.startswith("5 ranks cannot be divided evenly, as the engine has 2 hosts (n1, n2); expected ")
    assert many.startswith("hosts=4, but the engine has 2 hosts (n1, n2); expected hosts=2 or fewer")
    assert fit == ["even ['n1', 'n1', 'n2', 'n2']", "one {'n1'}"]


@pytest.mark.nightly
def test_ranks_of_a_machine_without_power_are_started_again_on_a_spare_one(three: Cluster) -> None:
    program = three.start("restart", program=PLACING)
    assert program.stdout is not None
    assert program.stdout.readline() == "places ['n2', 'n2'] ('n1', 'n2')\n"
    assert program.stdout.readline() == "hangs\n"
    three.machines[1].power_off()
    out, err = program.communicate(timeout=150)
    assert program.returncode == 0, out + err
    lost, *then = out.splitlines()
    assert "HostLost" in lost and "on n2" in lost and 8 < float(lost.split()[2]) < 14, out
    assert then == ["then ['n3', 'n3'] ('n1', 'n3')", "asked ['n3', 'n3'] ['n1']", "asked ['n3', 'n3']"], err
    assert err.count(" was lost, and with it ") == 1 and "restarting 2 ranks of mesh on host n3" in err, err


@pytest.mark.nightly
def test_ranks_whose_agent_is_killed_are_started_again_by_a_new_one_there(cluster: Cluster) -> None:
    program = cluster.start("restart", program=PLACING)
    assert program.stdout is not None
    assert program.stdout.readline() == "places ['n2', 'n2'] ('n1', 'n2')\n"
    assert program.stdout.readline() == "hangs\n"
    _, second = cluster.machines
    agents = [pid for pid, line in second.processes().items() if "agent_main" in line]
    second.kill(min(agents))
    out, err = program.communicate(timeout=150)
    assert program.returncode == 0, out + err
    lost, *then = out.splitlines()
    assert "HostLost" in lost and float(lost.split()[2]) < 3, out
    assert then == ["then ['n2', 'n2'] ('n1', 'n2')", "asked ['n2', 'n2'] ['n1']", "asked ['n2', 'n2']"], err

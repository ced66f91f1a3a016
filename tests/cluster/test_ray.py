"""Agents on the nodes of a Ray cluster: a raylet on each machine, and the script on the first one."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import meshrt
from tests.cluster.launched import EXAMPLE, EXAMPLE_SAYS
from tests.cluster.machines import Machine, machines
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed (pip install --group ray)"
    ),
    pytest.mark.timeout(300),
]
PROGRAM = Path(__file__).with_name("ray_program.py")
#: Have Ray notice the loss of a node in some seconds, which takes half a minute as it is; and have its workers, and so
#: the ranks, the priority of all other processes.
_SETTINGS = [
    "RAY_worker_niceness=0",
    "RAY_health_check_period_ms=1000",
    "RAY_health_check_timeout_ms=5000",
    "RAY_health_check_failure_threshold=3",
]


class Cluster:
    """Machines with a raylet each: 4 CPUs, 2 GPUs that do not exist."""

    def __init__(self, made: list[Machine]) -> None:
        self.machines = made
        self.head = made[0]
        self.programs: list[subprocess.Popen[bytes]] = []
        joins = ["--head", "--port=6379", "--include-dashboard=false"]
        for machine in made:
            few = ["--num-cpus=4", "--num-gpus=2", "--object-store-memory=100000000", "--disable-usage-stats"]
            command = ["start", *joins, f"--node-ip-address={machine.address}", *few]
            done = machine.run("env", *_SETTINGS, sys.executable, "-m", "ray.scripts.scripts", *command, timeout=120)
            assert done.returncode == 0, done.stdout + done.stderr
            joins = [f"--address={self.head.address}:6379"]

    def run(self, what: str) -> subprocess.CompletedProcess[str]:
        """Run the program of these tests to its end."""
        return self.head.run(sys.executable, PROGRAM, what, timeout=200)

    def start(self, what: str) -> subprocess.Popen[bytes]:
        """Start the program of these tests."""
        self.programs.append(
            self.head.start(sys.executable, PROGRAM, what, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return self.programs[-1]

    def agents(self, machine: Machine) -> list[int]:
        """Return the pids of agents and ranks on a machine."""
        return [pid for pid, words in machine.processes().items() if "agent_main.py" in words or "meshrt" in words]

    def actors(self, machine: Machine) -> list[int]:
        """Return the pids of the actors of agents on a machine."""
        return [pid for pid, words in machine.processes().items() if words.startswith("ray::HostAgent")]

    def is_empty(self) -> bool:
        """Whether nothing of a program is left."""
        return not any(self.agents(machine) or self.actors(machine) for machine in self.machines)


def line_of(word: str, out: IO[bytes]) -> str:
    """Read the next line that begins with a word, and return the rest of it; Ray prints lines of its own."""
    for line in out:
        if line.startswith(f"{word} ".encode()):
            return line.decode().removeprefix(f"{word} ").strip()
    raise AssertionError("the program has ended")


def hosts_in(out: IO[bytes]) -> list[str]:
    """Read the next line about hosts."""
    return line_of("hosts", out).split()


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with machines(3) as made:
        yield Cluster(made)


@pytest.fixture
def cluster(three: Cluster) -> Iterator[Cluster]:
    """Three nodes that nothing runs on, before and after."""
    yield three
    for program in three.programs:
        program.kill()
        program.communicate()
    three.programs.clear()
    wait_until(three.is_empty, 60, "processes are left on a machine")


@pytest.mark.nightly
def test_each_host_of_a_mesh_is_a_node(cluster: Cluster) -> None:
    done = cluster.run("meshes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "devices {'0,1'} ranks 4",
        "hosts ['n1', 'n2', 'n3'] True",
        "left []",
        "packed {('none', 'hello')} 1",
        "without hosts 2",
    ]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_example(cluster: Cluster) -> None:
    done = cluster.head.run("env", "CUDA_VISIBLE_DEVICES=", sys.executable, EXAMPLE, "20", "ray", "2", timeout=200)
    assert done.returncode == 0, done.stderr
    ranks, weight = done.stdout.splitlines()
    assert ranks.startswith("2 ranks on n") and len(set(ranks.split()[3:])) == 2, "Ray says which nodes"
    assert weight == EXAMPLE_SAYS[1]


@pytest.mark.nightly
def test_what_the_cluster_does_not_have_is_said(cluster: Cluster) -> None:
    done = cluster.run("pending")
    what = "Ray has not placed 3 hosts with CPU 1, GPU 2, disk 2 each: "
    why = "disk 2 is free for 0 of 3 hosts; with nothing else running, for 0"
    assert f"meshrt: {what}{why} (for 5 s, at most 7 s)" in done.stderr
    assert done.stdout.splitlines() == [
        f"SpawnError {what}{why}; RayEngine(timeout=7) has expired",
        "left [] True",
        "at the end 2",
    ]
    assert " was lost" not in done.stderr and "Ray says" not in done.stderr


@pytest.mark.slow
def test_a_node_without_meshrt_is_named(cluster: Cluster) -> None:
    last, package = cluster.machines[-1], Path(meshrt.__file__).parent
    assert last.run("mount", "-t", "tmpfs", "none", package).returncode == 0
    try:
        done = cluster.run("meshes")  # has two hosts first, then all
    finally:
        assert last.run("umount", package).returncode == 0
    assert done.returncode == 1
    assert "SpawnError: the agent of host n3 cannot be started: " in done.stderr
    assert "cannot import meshrt.engine.agent_main there" in done.stderr


@pytest.mark.nightly
def test_nothing_is_left_of_a_script_that_is_killed(cluster: Cluster) -> None:
    program = cluster.start("loss")
    assert program.stdout is not None
    assert len(hosts_in(program.stdout)) == 2
    for pid, words in cluster.head.processes().items():
        if str(PROGRAM) in words:
            cluster.head.kill(pid)
    program.communicate()
    wait_until(cluster.is_empty, 60, "agents and actors")
    assert "left [] True" in cluster.run("pending").stdout


@pytest.mark.nightly
def test_an_agent_ends_with_its_actor_and_is_replaced(cluster: Cluster) -> None:
    program = cluster.start("loss")
    assert program.stdout is not None
    hosts = hosts_in(program.stdout)
    lost = next(machine for machine in cluster.machines if machine.name == hosts[1])
    (pid,) = cluster.actors(lost)
    lost.kill(pid)
    assert "HostLost" in (said := line_of("lost", program.stdout)) and f"on {lost.name}" in said
    assert hosts_in(program.stdout) == hosts
    _, err = program.communicate(timeout=100)
    assert f"meshrt: host {lost.name}: Ray says: The actor is dead because" in err.decode()


def cut_off(machine: Machine, output: IO[bytes]) -> None:
    """Cut a machine off; the program says that it has lost it."""
    machine.cut()
    assert "HostLost" in (said := line_of("lost", output)) and f"on {machine.name}" in said


@pytest.mark.nightly
def test_a_node_that_is_cut_off_is_replaced_by_another() -> None:
    with machines(3) as made:
        cluster = Cluster(made)
        program = cluster.start("loss")
        assert program.stdout is not None
        hosts = hosts_in(program.stdout)
        lost = next(machine for machine in made[1:] if machine.name in hosts)
        cut_off(lost, program.stdout)
        assert set(hosts_in(program.stdout)) == {machine.name for machine in made} - {lost.name}
        assert program.wait(100) == 0
        program.communicate()
        wait_until(lambda: not cluster.agents(lost), 30, "the agent of a machine that is cut off")


@pytest.mark.nightly
def test_ranks_of_a_node_that_is_cut_off_are_started_again_on_another() -> None:
    """With the same devices: those of their place among the ranks of a host."""
    with machines(3) as made:
        cluster = Cluster(made)
        program = cluster.start("restart")
        assert program.stdout is not None
        places = ast.literal_eval(line_of("places", program.stdout))
        first, second = hosts_in(program.stdout)
        assert places == [(first, "0"), (first, "1"), (second, "0"), (second, "1")]
        lost = next(machine for machine in made if machine.name == second)
        cut_off(lost, program.stdout)
        (spare,) = {machine.name for machine in made} - {first, second}
        assert ast.literal_eval(line_of("again", program.stdout)) == [(spare, "0"), (spare, "1")]
        assert program.wait(100) == 0
        program.communicate()
        wait_until(lambda: not cluster.agents(lost), 30, "the agent of a machine that is cut off")

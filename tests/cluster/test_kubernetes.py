"""The manifests of ``examples/kubernetes`` on two machines: each is a pod, with the variables of its controller."""

from __future__ import annotations

import functools
import subprocess

import pytest

from tests.cluster.launched import TRAIN, Launched, fixtures, launched
from tests.cluster.machines import Machine
from tests.support.manifests import DIRECTORY, container, documents, environment_of, why_no_manifests

pytestmark = pytest.mark.skipif(bool(why_no_manifests()), reason=why_no_manifests())


# Pods share no home.
_cluster, cluster, _ = fixtures(functools.partial(launched, HOME="/tmp/home"))


def pod(name: str, index: int) -> dict[str, str]:
    """Return what a controller puts into the environment of a pod of the two: documented by each of them."""
    if name == "pytorchjob":
        torch = {"MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": str(index)}
        nodes = {"PET_NNODES": "2", "PET_NODE_RANK": str(index), "PET_NPROC_PER_NODE": "1"}
        return {**torch, **nodes, "PET_MASTER_ADDR": "train-master-0", "PET_MASTER_PORT": "23456"}
    return {"JOB_COMPLETION_INDEX": str(index)}


def mount(machine: Machine, secret: str, name: str) -> None:
    """Give a machine a secret file, as group-readable as Kubernetes makes it, and a name of the first machine."""
    lines = [f"set -e; umask 027; mkdir -p $(dirname {secret}); echo 0123456789abcdef > {secret}"]
    lines += [f"cat /etc/hosts > /run/hosts; echo 10.7.0.1 {name} >> /run/hosts"]
    done = machine.run("sh", "-c", "; ".join([*lines, "mount --bind /run/hosts /etc/hosts"]))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["indexed-job", "jobset", "pytorchjob"])
def test_a_manifest_starts_the_script_on_its_pods(cluster: Launched, name: str) -> None:
    *_, document = documents(DIRECTORY / f"{name}.yaml")
    given = environment_of(document)
    words = [word if word != "train.py" else TRAIN for word in container(document)["command"]]
    started: list[subprocess.Popen[str]] = []
    for index, machine in enumerate(cluster.machines):
        more = {**given, **pod(name, index), "MESHRT_SECRET_FILE": f"/run{given['MESHRT_SECRET_FILE']}"}
        if "MESHRT_HOSTS" in more:
            more["MESHRT_HOSTS"] = "2"
        mount(machine, more["MESHRT_SECRET_FILE"], name=given["MESHRT_ROOT"].partition(":")[0])
        started.append(cluster.start(*words, "calls", on=index, **more))
    (out, err), (_, other) = [program.communicate(timeout=100) for program in started]
    assert [program.returncode for program in started] == [0, 0], err + other
    assert "rank 0 has asked 0 on n2 1 on n2" in out
    for machine in cluster.machines:
        assert machine.run("umount", "/etc/hosts").returncode == 0
    cluster.wait_until_empty()

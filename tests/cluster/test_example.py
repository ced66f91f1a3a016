"""``examples/cluster.py`` on two machines: one script, started by torchrun, by variables, and by ssh.

The tests of SLURM, Open MPI and Ray start it, too.
"""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.launched import EXAMPLE, EXAMPLE_SAYS
from tests.cluster.sshd import CLIENT, sshd, why_no_ssh
from tests.cluster.test_launch import LAUNCH, Launch


@pytest.mark.slow
def test_launched(cluster: Cluster) -> None:
    launch = Launch(cluster.machines)
    try:
        for index in range(2):
            launch.start(index, *LAUNCH, EXAMPLE, "20", CUDA_VISIBLE_DEVICES="", **launch.known(index))
        (first, out, err), (second, _, other) = launch.ended()
    finally:
        launch.end()
    assert (first, second) == (0, 0), err + other
    assert out.splitlines() == EXAMPLE_SAYS


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_by_torchrun(cluster: Cluster) -> None:
    """By its own store, as the home is not shared."""
    launch = Launch(cluster.machines)
    try:
        for index in range(2):
            words = ["--nnodes", "2", "--node-rank", str(index), "--nproc-per-node", "1"]
            words += ["--master-addr", "n1", "--master-port", "29555", "-m", "meshrt", "launch", EXAMPLE, "20"]
            launch.start(index, sys.executable, "-m", "torch.distributed.run", *words, CUDA_VISIBLE_DEVICES="")
        (first, out, err), (second, _, other) = launch.ended()
    finally:
        launch.end()
    assert (first, second) == (0, 0), err + other
    assert out.splitlines() == EXAMPLE_SAYS


@pytest.mark.nightly
@pytest.mark.skipif(bool(why_no_ssh()), reason=why_no_ssh())
def test_by_ssh(cluster: Cluster) -> None:
    first, _ = cluster.machines
    with sshd(cluster.machines):
        # What a user has in ~/.ssh/config, which belongs to the machine that the tests run on.
        lines = [
            "mkdir -p /tmp/bin",
            f"printf '#!/bin/sh\\nexec /usr/bin/ssh {' '.join(CLIENT)} \"$@\"\\n' > /tmp/bin/ssh",
        ]
        made = first.run("sh", "-c", "; ".join([*lines, "chmod +x /tmp/bin/ssh"]))
        assert made.returncode == 0, made.stderr
        path = f"PATH=/tmp/bin:{first.environment()['PATH']}"
        command = first.command("env", "HOME=/tmp/home", path, sys.executable, EXAMPLE, "20", "ssh", "n1", "n2")
        done = cluster.run(command, {})
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == EXAMPLE_SAYS

"""``examples/cluster.py`` on two machines: one script, started by variables of a launcher, and by ssh."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.sshd import CLIENT, sshd, why_no_ssh
from tests.cluster.test_launch import LAUNCH, Launch

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "cluster.py")
#: What it prints, with two ranks whose targets are 1 and 2.
SAID = ["2 ranks on n1 n2", "weight 1.318 after 20 steps"]


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
    assert out.splitlines() == SAID


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
        assert done.stdout.splitlines() == SAID

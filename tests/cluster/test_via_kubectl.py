"""``--via "kubectl exec -i POD --"``: a command in the place of kubectl, which passes words on as kubectl does."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_ssh import STOPPED
from tests.support.waiting import wait_until

VIA = "kubectl exec -i trainer-0 --"
#: The words behind ``--`` go to the container as they are: no shell joins them. The process there has the variables of
#: the container, and its standard input only with ``-i``; the status is that of kubectl.
_KUBECTL = """#!/bin/sh
[ "$1" = exec ] && shift || exit 97
[ "$1" = -i ] && shift || exec </dev/null
[ "$1" = trainer-0 ] && [ "$2" = -- ] && shift 2 || exit 98
{enter} env -i PATH=/usr/bin:/bin HOME=/tmp/home "$@"
status=$?
[ $status = 0 ] || echo "command terminated with exit code $status" >&2
exit $status
"""


@pytest.mark.slow
def test_the_tools_look_into_a_container(cluster: Cluster, tmp_path: Path) -> None:
    """By the prompt, a command of the shell, and one that reads files."""
    pod = cluster.machines[1]
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(_KUBECTL.format(enter=shlex.join(pod.command())))
    kubectl.chmod(0o700)
    program = pod.start(sys.executable, "-c", STOPPED, stdin=subprocess.DEVNULL)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def meshrt(*words: str, via: str = VIA) -> str:
        done = cluster.run([*cluster.inside, sys.executable, "-m", "meshrt", *words, "--via", via], path)
        return done.stdout + done.stderr

    wait_until(lambda: "1 stopped" in meshrt("ps"), 40, "its rank stops")
    assert "stopped in the debugger" in meshrt("where")
    assert "42" in meshrt("p", "worker", "7 * value")
    assert "hello from n2" in meshrt("logs")
    assert "666" in meshrt("debug", "-c", "attach worker 0", "-c", "p value * 111", "-c", "q")
    failed = meshrt("where", via="kubectl exec trainer-0 --")
    assert "kubectl exec trainer-0 -- has ended, with exit status 0, before meshrt answered there" in failed
    assert "has ended, with exit status 98, before" in meshrt("where", via="kubectl exec -i other --")
    meshrt("continue")
    assert program.wait(30) == 0

"""Agents that are started by ssh, from a script that runs on one of the machines."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import PROGRAM, Cluster
from tests.cluster.machines import Machine
from tests.support.waiting import wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin") or ""
pytestmark = pytest.mark.skipif(not (SSHD and shutil.which("ssh")), reason="ssh and sshd are not installed")

#: Port 22 as /proc writes it, and the state of a socket that listens.
_LISTENS = (":0016", "0A")
_CLIENT = ["-F", "none", "-i", "/tmp/ssh/user", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]


@contextlib.contextmanager
def sshd(machine: Machine, key: str) -> Iterator[None]:
    """Serve ssh on a machine for the holder of a key, which the machine has, too."""
    files = "umask 077; mkdir -p /run/sshd /tmp/ssh; cd /tmp/ssh; ssh-keygen -q -t ed25519 -N '' -f host"
    done = machine.run("sh", "-c", f"{files}; printf %s '{key}' > user; ssh-keygen -y -f user > keys")
    assert done.returncode == 0, done.stderr
    options = ["HostKey=/tmp/ssh/host", "AuthorizedKeysFile=/tmp/ssh/keys", "StrictModes=no", "UsePAM=no"]
    words = [word for option in [*options, "PermitRootLogin=yes"] for word in ("-o", option)]
    serving = machine.start(SSHD, "-D", "-f", "/dev/null", *words)
    try:
        wait_until(lambda: _listens(machine), 20, "sshd does not listen")
        yield
    finally:
        for pid in machine.processes():
            with contextlib.suppress(ProcessLookupError):
                machine.kill(pid)
        serving.wait(20)


def _listens(machine: Machine) -> bool:
    table = Path(f"/proc/{machine.pid}/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[1].endswith(_LISTENS[0]) and row.split()[3] == _LISTENS[1] for row in table)


def test_a_script_on_one_machine_starts_agents_on_both(cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster.machines
    key = tmp_path / "key"
    assert first.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/new").returncode == 0
    key.write_text(first.run("cat", "/tmp/new").stdout)
    with sshd(first, key.read_text()), sshd(second, key.read_text()):
        command = first.command(sys.executable, PROGRAM, "calls", first.name, second.name)
        done = cluster.run(command, {"SSH": json.dumps(_CLIENT)})
        assert done.returncode == 0, done.stderr
        assert "places ['n1', 'n2']" in done.stdout and "asked ['n2', 'n2']" in done.stdout
        command = first.command(sys.executable, PROGRAM, "calls", first.name, "nowhere")
        done = cluster.run(command, {"SSH": json.dumps(_CLIENT)})
        assert done.returncode == 1
        assert "the agent of host nowhere has ended before it joined, with exit status 255" in done.stderr
        assert "Could not resolve hostname nowhere" in done.stderr

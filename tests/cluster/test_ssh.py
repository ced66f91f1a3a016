"""Agents that are started by ssh, from a script that runs on one of the machines."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
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

#: A program whose rank stops.
STOPPED = """
import socket
from meshrt import Actor, endpoint, proc_mesh
class Worker(Actor):
    @endpoint
    def work(self, value):
        print("hello from", socket.gethostname(), flush=True)
        breakpoint()
proc_mesh(n=1).spawn("worker", Worker).work.call(6).get()
"""


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


@pytest.fixture
def ssh_key(tmp_path: Path, cluster: Cluster) -> str:
    """A new private key, as text."""
    first = cluster.machines[0]
    assert first.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/new").returncode == 0
    return first.run("sh", "-c", "cat /tmp/new; rm /tmp/new /tmp/new.pub").stdout


def test_a_script_on_one_machine_starts_agents_on_both(cluster: Cluster, ssh_key: str) -> None:
    first, second = cluster.machines
    with sshd(first, ssh_key), sshd(second, ssh_key):
        command = first.command(sys.executable, PROGRAM, "calls", first.name, second.name)
        done = cluster.run(command, {"SSH": json.dumps(_CLIENT)})
        assert done.returncode == 0, done.stderr
        assert "places ['n1', 'n2']" in done.stdout and "asked ['n2', 'n2']" in done.stdout
        command = first.command(sys.executable, PROGRAM, "calls", first.name, "nowhere")
        done = cluster.run(command, {"SSH": json.dumps(_CLIENT)})
        assert done.returncode == 1
        assert "the agent of host nowhere has ended before it joined, with exit status 255" in done.stderr
        assert "Could not resolve hostname nowhere" in done.stderr


def test_the_tools_look_at_a_program_of_another_machine(cluster: Cluster, ssh_key: str) -> None:
    """Through ssh alone: by the prompt, a command of the shell, and one that reads files."""
    first, second = cluster.machines
    with sshd(first, ssh_key), sshd(second, ssh_key):
        program = second.start(sys.executable, "-c", STOPPED, stdin=subprocess.DEVNULL)
        via = shlex.join(["ssh", "-q", *_CLIENT, second.name])

        def meshrt(*words: str) -> str:
            command = first.command("env", "HOME=/tmp/home", sys.executable, "-m", "meshrt", *words, "--via", via)
            return cluster.run(command, {}).stdout

        wait_until(lambda: "1 stopped" in meshrt("ps"), 40, "its rank stops")
        assert "stopped in the debugger" in meshrt("where")
        assert "42" in meshrt("p", "worker", "7 * value")
        assert "hello from n2" in meshrt("logs")
        meshrt("continue")
        assert program.wait(30) == 0

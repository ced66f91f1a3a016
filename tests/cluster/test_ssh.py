"""Agents that are started by ssh, from a script that runs on one of the machines."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from tests.cluster.conftest import PROGRAM, Cluster
from tests.cluster.seen import forms, places
from tests.cluster.sshd import CLIENT, sshd, why_no_ssh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_no_ssh()), reason=why_no_ssh())

GUARDED = PROGRAM.with_name("guarded.py")
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


@pytest.mark.slow
def test_a_script_on_one_machine_starts_agents_on_both(cluster: Cluster) -> None:
    first, second = cluster.machines
    with sshd(cluster.machines):
        command = first.command(sys.executable, PROGRAM, "calls", first.name, second.name)
        done = cluster.run(command, {"SSH": json.dumps(CLIENT)})
        assert done.returncode == 0, done.stderr
        assert "places ['n1', 'n2']" in done.stdout and "asked ['n2', 'n2']" in done.stdout
        command = first.command(sys.executable, PROGRAM, "calls", first.name, "nowhere")
        done = cluster.run(command, {"SSH": json.dumps(CLIENT)})
        assert done.returncode == 1
        assert "the agent of host nowhere has ended before it joined, with exit status 255" in done.stderr
        assert "Could not resolve hostname nowhere" in done.stderr


@pytest.mark.slow
def test_secrets_are_in_no_argument_environment_or_file(cluster: Cluster) -> None:
    """The words of ``ssh`` are seen on both machines, and by all users there."""
    first = cluster.machines[0]
    agents = json.dumps({machine.name: ["ssh", *CLIENT, machine.name] for machine in cluster.machines})
    with sshd(cluster.machines):
        words = ["env", f"AGENTS={agents}", "HOME=/tmp/home", sys.executable, str(GUARDED)]
        program = first.start(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert program.stdout is not None
        told = json.loads(program.stdout.readline())
        secrets = forms(bytes.fromhex(told["secret"]), told["certificate"][1].encode())
        found = places(cluster.machines)
        assert sum(b"agent_main" in text for text in found.values()) >= 4, "the words of ssh, and the agents"
        assert not [place for place, text in found.items() for secret in secrets if secret in text]
        program.communicate(timeout=60)
        assert program.returncode == 0


@pytest.mark.nightly
def test_the_tools_look_at_a_program_of_another_machine(cluster: Cluster) -> None:
    """Through ssh alone: by the prompt, a command of the shell, and one that reads files."""
    first, second = cluster.machines
    with sshd(cluster.machines):
        program = second.start(sys.executable, "-c", STOPPED, stdin=subprocess.DEVNULL)
        via = shlex.join(["ssh", "-q", *CLIENT, second.name])

        def meshrt(*words: str) -> str:
            command = first.command("env", "HOME=/tmp/home", sys.executable, "-m", "meshrt", *words, "--via", via)
            return cluster.run(command, {}).stdout

        wait_until(lambda: "1 stopped" in meshrt("ps"), 40, "its rank stops")
        assert "stopped in the debugger" in meshrt("where")
        assert "42" in meshrt("p", "worker", "7 * value")
        assert "hello from n2" in meshrt("logs")
        meshrt("continue")
        assert program.wait(30) == 0

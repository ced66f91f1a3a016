"""Strangers at the ports of a program: they are closed, nothing of theirs is unpickled, and the mesh goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.seen import forms, places
from tests.cluster.stranger import KINDS
from tests.cluster.test_loss import tell
from tests.support.programs import ROOT
from tests.support.waiting import wait_until

#: Bytes that a stranger with the certificate is told: the server's nonce and its proof, which say nothing.
PROOF = 64
#: Bytes that a process may take more after a storm: OpenSSL and the allocator keep some of what they had.
GROWTH = 8 << 20


class Guarded:
    """A program, and what strangers do to it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.program = cluster.start(program=ROOT / "tests" / "cluster" / "guarded.py")
        assert self.program.stdout is not None
        self._told = self.program.stdout.readline()
        assert self._told, self.program.communicate()
        told = json.loads(self._told)
        self.doors = [door[0] for door in told["doors"]]
        self.secrets = forms(bytes.fromhex(told["secret"]), told["certificate"][1].encode())
        pids = [self.program.pid, *(pid for machine in cluster.machines for pid in machine.processes())]
        self.processes = [psutil.Process(pid) for pid in pids]

    def attack(self, *kinds: str) -> list[tuple[str, str, int, bool]]:
        """Have a stranger attack all doors, while the program calls; returns what became of each connection."""
        command = [*self._cluster.inside, sys.executable, "-m", "tests.cluster.stranger", *kinds]
        pipe = subprocess.PIPE
        stranger = subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        assert stranger.stdin is not None
        stranger.stdin.write(self._told)
        stranger.stdin.close()
        stranger.stdin = None
        calls = 0
        while stranger.poll() is None or not calls:
            assert tell(self.program, f"call {calls}") == f"call {calls} 2\n"
            calls += 1
        out, err = stranger.communicate(timeout=100)
        assert stranger.returncode == 0, err
        return [(kind, door, received, closed) for kind, door, received, closed in json.loads(out)]

    def descriptors(self) -> list[int]:
        """How many each process has."""
        return [process.num_fds() for process in self.processes]

    def memory(self) -> list[int]:
        """Bytes that each process has."""
        return [process.memory_info().rss for process in self.processes]


@pytest.fixture
def guarded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """A program that is alive, and says nothing of an error, after the test, too."""
    monkeypatch.setitem(cluster.environment, "PYTHONPATH", os.fspath(ROOT))
    made = Guarded(cluster)
    yield made
    assert tell(made.program, "last") == "last 2\n"
    out, err = made.program.communicate(timeout=60)
    assert made.program.returncode == 0, out + err


@pytest.mark.slow
def test_the_secrets_of_agents_are_in_no_argument_environment_or_file(guarded: Guarded, cluster: Cluster) -> None:
    """The agents are started by a command, as ssh starts them: they read their invitation."""
    own = psutil.Process(guarded.program.pid)
    found = places(cluster.machines, [own.pid, *(child.pid for child in own.children(recursive=True))])
    assert sum(b"agent_main" in text for text in found.values()) >= 4, "the commands, and the agents"
    assert not [place for place, text in found.items() for secret in guarded.secrets if secret in text]


ALL_BUT_SILENT = [kind for kind in KINDS if kind != "silent"]


@pytest.mark.slow
@pytest.mark.row("H6")
@pytest.mark.timeout(240)
def test_each_is_closed_and_costs_nothing(guarded: Guarded) -> None:
    found = guarded.attack(*ALL_BUT_SILENT)
    assert len(found) == len(ALL_BUT_SILENT) * len(guarded.doors) and len(guarded.doors) == 6
    assert [each for each in found if not each[3]] == []
    told = {kind: {received for other, _, received, _ in found if other == kind} for kind in ALL_BUT_SILENT}
    assert {kind: sizes for kind, sizes in told.items() if sizes != {0}} == {"a wrong secret": {PROOF}}
    descriptors, memory = guarded.descriptors(), guarded.memory()
    for _ in range(2):
        guarded.attack("noise in place of TLS", "no certificate", "a wrong secret", "much")
    wait_until(lambda: guarded.descriptors() <= descriptors, 20, "descriptors of strangers")
    grown = [after - before for before, after in zip(memory, guarded.memory(), strict=True)]
    assert max(grown) < GROWTH, grown


@pytest.mark.row("H6")
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_thousands_that_say_nothing(guarded: Guarded) -> None:
    guarded.attack("http")
    descriptors, memory = guarded.descriptors(), guarded.memory()
    found = guarded.attack("silent")
    assert [(received, closed) for _, _, received, closed in found] == [(0, True)] * len(guarded.doors)
    wait_until(lambda: guarded.descriptors() <= descriptors, 20, "descriptors of strangers")
    grown = [after - before for before, after in zip(memory, guarded.memory(), strict=True)]
    assert max(grown) < GROWTH, grown

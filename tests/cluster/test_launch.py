"""``meshrt launch`` on two machines, one process on each, as launchers start them: by their variables."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import meshrt
from meshrt.engine.joining import invited_by
from meshrt.engine.launch.shared_file import SharedFile
from meshrt.mesh.invitations import known_invitation
from tests.cluster.conftest import Cluster
from tests.cluster.machines import Machine, machines
from tests.cluster.seen import forms, forms_of, places
from tests.support.waiting import wait_until

SCRIPT = str(Path(__file__).with_name("launch_script.py"))
LAUNCH = [sys.executable, "-m", "meshrt", "launch"]
#: What host 0 prints of a program that ends well.
DONE = [
    "argv ['calls', '-x'] __main__ True",
    "places ['n1', 'n2'] {hosts: 2}",
    "asked ['n2']",
    "filled ('n1', 'n2') ['n1', 'n1', 'n2', 'n2']",
    "here [['n1', 'n2'], ['n1', 'n2']]",
]
_SECONDS = 100


class Launch:
    """One process on each machine."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, index: int, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command on one of them."""
        machine = self._machines[index]
        environment = machine.environment(**variables)
        pipe = subprocess.PIPE
        self.processes.append(
            machine.start(*words, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        )
        return self.processes[-1]

    def secret(self, index: int) -> str:
        """Write a secret file on a machine, the same on each; returns its path."""
        done = self._machines[index].run("sh", "-c", "umask 077; echo 0123456789abcdef > /tmp/secret")
        assert done.returncode == 0, done.stderr
        return "/tmp/secret"

    def known(self, index: int) -> dict[str, str]:
        """Return variables by which the machines find each other without a launcher."""
        return {
            "MESHRT_INDEX": str(index),
            "MESHRT_HOSTS": str(len(self._machines)),
            "MESHRT_ROOT": "n1:40000",
            "MESHRT_SECRET_FILE": self.secret(index),
        }

    def end(self) -> None:
        """End what a test has left."""
        for machine in self._machines:
            machine.end_processes()
        for process in self.processes:
            process.kill()
            process.communicate()

    def ended(self) -> list[tuple[int, str, str]]:
        """Wait for all; returns their exit statuses and what they have printed."""
        said = [process.communicate(timeout=_SECONDS) for process in self.processes]
        found = [
            (process.returncode, out.decode(), err.decode())
            for process, (out, err) in zip(self.processes, said, strict=True)
        ]
        print(found)
        return found


@pytest.fixture
def launch(cluster: Cluster) -> Iterator[Launch]:
    made = Launch(cluster.machines)
    yield made
    made.end()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that all machines see: their /tmp is their own."""
    directory = Path(tempfile.mkdtemp(prefix="meshrt-launch-", dir="/var/tmp"))
    yield directory
    shutil.rmtree(directory)


@pytest.mark.slow
def test_by_variables_and_a_secret_file(launch: Launch) -> None:
    for index in (1, 0):
        launch.start(index, *LAUNCH, SCRIPT, "calls", "-x", **launch.known(index))
    (other, *_), (status, out, err) = launch.ended()
    assert (status, other) == (0, 0), err
    assert out.splitlines() == DONE


@pytest.mark.slow
def test_as_pods_of_an_indexed_job_whose_script_fails(launch: Launch) -> None:
    for index in (0, 1):
        pod = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"train-{index}", "MESHRT_ROOT": "n1:40000"}
        words = ["--hosts", "2", "--secret-file", launch.secret(index)]
        launch.start(index, *LAUNCH, *words, SCRIPT, "fail", **pod)
    (status, _, err), (other, *_) = launch.ended()
    assert (status, other) == (1, 0)
    assert err.endswith("ValueError: as asked\n") and "meshrt/engine" not in err


def test_a_script_that_ends_before_it_has_a_mesh(launch: Launch) -> None:
    for index in (1, 0):  # the other host is waited for 5 s at the end: its interpreter starts first
        launch.start(index, *LAUNCH, SCRIPT, "early", **launch.known(index))
    begun = time.monotonic()
    assert [status for status, _, _ in launch.ended()] == [0, 7]
    assert time.monotonic() - begun < 60


@pytest.mark.slow
def test_by_a_file_that_both_see_and_an_earlier_job_has_left(launch: Launch, shared: Path) -> None:
    left = SharedFile(shared / "job-mine")
    left.publish(known_invitation([("10.7.0.1", 1)], b"of another job"))
    for index in (1, 0):
        variables = {"MESHRT_INDEX": str(index), "MESHRT_HOSTS": "2", "MESHRT_JOB": "mine"}
        launch.start(index, *LAUNCH, SCRIPT, "calls", "-x", MESHRT_RENDEZVOUS=str(shared), **variables)
    (other, *_), (status, out, err) = launch.ended()
    assert (status, other) == (0, 0), err
    assert out.splitlines() == DONE
    assert list(shared.iterdir()) == []


#: Prints what is in torch's store that another process serves.
_STORED = """
from torch.distributed import TCPStore
print(TCPStore("n1", 29600, None, False, wait_for_workers=False).get("meshrt/launch/0").decode())
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["a secret file", "a file that both see", "torch's store"])
def test_secrets_are_in_no_argument_environment_or_file(
    way: str, launch: Launch, cluster: Cluster, shared: Path
) -> None:
    """Neither what the hosts join with, nor what the program has, once they have joined."""
    variables = {"MESHRT_HOSTS": "2"}
    if way == "a secret file":
        variables |= launch.known(0)
        launch.secret(1)
    elif way == "a file that both see":
        variables |= {"MESHRT_JOB": "mine", "MESHRT_RENDEZVOUS": str(shared)}
    elif importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    else:
        variables |= {"MASTER_ADDR": "n1", "MASTER_PORT": "29600"}
    first = launch.start(0, *LAUNCH, SCRIPT, "secrets", **variables | {"MESHRT_INDEX": "0"})
    assert first.stdout is not None
    assert first.stdout.readline().startswith(b"argv")
    if way == "a secret file":
        secrets = [b"0123456789abcdef"]
    elif way == "torch's store":
        done = cluster.machines[0].run(sys.executable, "-c", _STORED)
        assert done.returncode == 0, done.stderr
        secrets = forms_of(invited_by(bytes.fromhex(done.stdout)))
    else:
        secrets = forms_of(invited_by(SharedFile(shared / "job-mine").fetch() or b""))
    launch.start(1, *LAUNCH, SCRIPT, "secrets", **variables | {"MESHRT_INDEX": "1"})
    said = next(line for line in first.stdout if line.startswith(b"secrets")).split()
    secrets += forms(*(bytes.fromhex(each.decode()) for each in said[1:]))
    found = {name: text for name, text in places(cluster.machines).items() if not name.endswith("/tmp/secret")}
    assert sum(b"launch" in text for text in found.values()) and sum(b"agent_main" in text for text in found.values())
    assert not [name for name, text in found.items() for secret in secrets if secret in text]
    assert list(shared.iterdir()) == []


@pytest.mark.slow
def test_a_host_that_joins_late_is_there_for_the_next_mesh(launch: Launch) -> None:
    first = launch.start(0, *LAUNCH, "--min-hosts", "1", SCRIPT, "late", **launch.known(0))
    assert first.stdout is not None
    assert first.stderr is not None
    assert [first.stdout.readline() for _ in range(2)][1] == b"first ('n1',)\n"
    assert b"1 of 2 hosts have joined after 5 s; missing: index 1" in first.stderr.readline()
    launch.start(1, *LAUNCH, "--min-hosts", "1", SCRIPT, "late", **launch.known(1))
    (status, out, err), (other, *_) = launch.ended()
    assert (status, other) == (0, 0), err
    assert out == "second ('n1', 'n2')\n"


def test_hosts_that_do_not_come_and_a_host_0_that_does_not(launch: Launch) -> None:
    launch.start(0, *LAUNCH, "--timeout", "1", SCRIPT, "calls", **launch.known(0))
    (status, _, err) = launch.ended()[0]
    assert status == 1
    assert "SpawnError: 1 of 2 hosts have joined after 1 s; missing: index 1; see the output" in err
    launch.start(1, *LAUNCH, "--timeout", "1", SCRIPT, "calls", **launch.known(1))
    (status, _, err) = launch.ended()[1]
    assert status == 1
    assert "meshrt launch: host 0 was not found for" in err
    assert "n1 port 40000: Connection refused (MESHRT_ROOT=n1:40000)" in err


def test_a_host_with_another_meshrt_is_one_error_at_once(launch: Launch, cluster: Cluster) -> None:
    package = Path(meshrt.__file__).parent
    edit = "sed -i \"s/^__version__ = .*/__version__ = '9.9.9'/\" /tmp/home/meshrt/__init__.py"
    other = f"cp -r {package} /tmp/home/ && {edit}"
    done = cluster.machines[1].run("sh", "-c", other)
    assert done.returncode == 0, done.stderr
    launch.start(0, *LAUNCH, "--timeout", "40", SCRIPT, "calls", **launch.known(0))
    launch.start(1, *LAUNCH, SCRIPT, "calls", PYTHONPATH="/tmp/home", **launch.known(1))
    (status, out, err), (other_status, _, other_err) = launch.ended()
    why = f"host n2 has meshrt 9.9.9, the script meshrt {meshrt.__version__}; expected the same version"
    assert (status, err.count(why), err.splitlines()[-1]) == (1, 1, f"meshrt.errors.SpawnError: {why}")
    assert "places" not in out
    assert (other_status, other_err) == (1, f"{why}\n")


def test_a_host_that_cannot_make_the_certificate_says_what_it_needs(launch: Launch) -> None:
    """With a secret file each host makes the certificate of the program."""
    without = "import sys; sys.modules['cryptography'] = None; import meshrt.cli; sys.exit(meshrt.cli.main())"
    launch.start(1, sys.executable, "-c", without, "launch", SCRIPT, "calls", **launch.known(1))
    status, _, err = launch.ended()[0]
    assert status and "Traceback" not in err
    reason = "this requires the package cryptography"
    assert f"meshrt launch: host n2 cannot create the certificate of the program: {reason}" in err
    assert f"; install it for {sys.executable}. Each host needs the package if a secret file is used" in err


def test_the_others_end_when_host_0_is_killed(launch: Launch, cluster: Cluster) -> None:
    first, second = (launch.start(index, *LAUNCH, SCRIPT, "hang", **launch.known(index)) for index in (0, 1))
    assert first.stdout is not None
    while b"hangs" not in first.stdout.readline():
        pass
    for pid in cluster.machines[0].processes():
        with contextlib.suppress(ProcessLookupError):
            cluster.machines[0].kill(pid)
    second.wait(30)
    assert second.stderr is not None
    assert (second.returncode, second.stderr.read().decode()) == (
        1,
        "meshrt: the agent of host n2 ends: the script on host 0 has died, or its machine does not answer\n",
    )
    wait_until(cluster.is_empty, 20, "processes of the ranks")


@pytest.mark.nightly
def test_ranks_of_a_lost_host_are_started_again_on_a_spare_one() -> None:
    with machines(3) as made:
        launch = Launch(made)
        first, second, third = (
            launch.start(index, *LAUNCH, SCRIPT, "spare", **launch.known(index)) for index in range(3)
        )
        assert first.stdout is not None
        assert [first.stdout.readline() for _ in range(2)][1] == b"places ['n1', 'n2']\n"
        made[1].end_processes()
        out, err = first.communicate(timeout=_SECONDS)
        assert out == b"then n3 ('n1', 'n3')\n", err
        assert (first.returncode, third.wait(20)) == (0, 0), err
        second.wait(20)
        launch.end()


def test_the_agent_has_the_pid_of_the_launched_process(launch: Launch, cluster: Cluster) -> None:
    first, second = (launch.start(index, *LAUNCH, SCRIPT, "hang", **launch.known(index)) for index in (0, 1))
    assert first.stdout is not None
    while b"hangs" not in first.stdout.readline():
        pass
    # `nsenter` has forked: the process that it was asked for is the one whose parent is it.
    children = Path(f"/proc/{second.pid}/task/{second.pid}/children").read_text().split()
    assert [Path(f"/proc/{pid}/comm").read_text() for pid in children] == ["meshrt-agent\n"]
    assert b"0123456789abcdef" not in Path(f"/proc/{children[0]}/environ").read_bytes()
    assert b"0123456789abcdef" not in Path(f"/proc/{children[0]}/cmdline").read_bytes()
    for pid in cluster.machines[0].processes():
        with contextlib.suppress(ProcessLookupError):
            cluster.machines[0].kill(pid)
    second.wait(30)

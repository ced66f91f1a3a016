"""``meshrt launch`` under a real torchrun on each machine, which find each other by their own rendezvous."""

from __future__ import annotations

import functools
import importlib.util
import signal
import subprocess
from collections.abc import Sequence

import pytest

from tests.cluster.launched import TRAIN, Launched, fixtures, launched

# Without loading it: that takes seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


# The home is not shared: torch's store is the way to find each other.
_cluster, cluster, _ = fixtures(functools.partial(launched, HOME="/tmp/home"))


#: torchrun's own rendezvous: which machine is the first one is not known before.
DYNAMIC = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "n1:29400", "--rdzv-id", "job")


def command(*words: str, rendezvous: Sequence[str] = DYNAMIC, each: int = 1) -> list[str]:
    """Return what is typed on each machine."""
    sizes = ["--nnodes", "2", "--nproc-per-node", str(each)]
    return ["torchrun", *sizes, *rendezvous, "-m", "meshrt", "launch", TRAIN, *words]


def run(cluster: Launched, *words: str, each: int = 1) -> list[subprocess.CompletedProcess[str]]:
    """Run it on both machines to its end; returns how that ended on each."""
    started = [cluster.start(*command(*words, each=each), on=number) for number in range(2)]
    done = []
    for program in started:
        out, err = program.communicate(timeout=110)
        print(f"---- exit status {program.returncode}\n{out}\n---- standard error\n{err}")
        done.append(subprocess.CompletedProcess(words, program.returncode, out, err))
    return done


@pytest.mark.nightly
def test_a_script_has_the_machines_as_its_hosts(cluster: Launched) -> None:
    done = run(cluster, "calls", "--some", "words")
    assert [each.returncode for each in done] == [0, 0]
    # torchrun numbers the machines as it likes.
    (out,) = [each.stdout for each in done if each.stdout]
    lines = out.splitlines()
    assert [line.split()[-1] for line in lines[:4]] in (["n1", "n1", "n2", "n2"], ["n2", "n2", "n1", "n1"])
    assert lines[5].endswith("with ['--some', 'words']")
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_a_failing_script_fails_its_torchrun(cluster: Launched) -> None:
    done = run(cluster, "exit", "7")
    (failed,) = [each for each in done if "the script is on" in each.stdout]
    assert failed.returncode == 1 and "exitcode  : 7" in failed.stderr
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_ctrl_c_on_one_machine_ends_everything(cluster: Launched) -> None:
    """That of the script: its end is that of the agent on the other machine, which its torchrun watches."""
    static = [("--master-addr", "n1", "--master-port", "29555", "--node-rank", str(number)) for number in range(2)]
    others = cluster.start(*command("hang", rendezvous=static[1]), on=1)
    program = cluster.start_that_hangs(*command("hang", rendezvous=static[0]))
    cluster.signal("torchrun", signal.SIGINT)
    program.communicate(timeout=60)
    others.communicate(timeout=60)
    assert program.returncode != 0
    cluster.wait_until_empty()


@pytest.mark.nightly
def test_two_processes_on_a_machine_are_refused(cluster: Launched) -> None:
    done = run(cluster, "calls", each=2)
    assert all(each.returncode for each in done)
    assert "torchrun has started 2 processes on a host" in done[0].stderr
    assert "use torchrun --nproc-per-node 1" in done[0].stderr
    cluster.wait_until_empty()

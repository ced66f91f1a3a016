"""Machines that are far from each other: everything takes longer, and nothing is lost because of that."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.machines import why_not_delayed
from tests.cluster.test_loss import begun
from tests.cluster.test_two_machines import ARRAYS
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.row("H7"),
    pytest.mark.skipif(bool(why_not_delayed()), reason=why_not_delayed()),
]
#: Seconds from the script to a machine; from one machine to the other it is twice as long.
DELAY = 0.15
#: A connection that is refused takes one round trip.
_ROUND_TRIP = """
import contextlib, socket, sys, time
begun = time.monotonic()
with contextlib.suppress(ConnectionRefusedError):
    socket.create_connection((sys.argv[1], 9))
print(time.monotonic() - begun)
"""
LINKS = Path(__file__).with_name("links.py")
WORKING = Path(__file__).with_name("working.py")


@pytest.fixture
def slow(cluster: Cluster) -> Cluster:
    """Two machines that are far from each other, and from the script."""
    for machine in cluster.machines:
        machine.delay(DELAY)
    first, second = cluster.machines
    done = first.run(sys.executable, "-c", _ROUND_TRIP, second.address)
    assert float(done.stdout) >= 4 * DELAY, done.stderr
    return cluster


@pytest.mark.timeout(240)
def test_joining_calls_and_arrays(slow: Cluster) -> None:
    program = slow.start("calls")
    out, err = program.communicate(timeout=200)
    assert program.returncode == 0, out + err
    lines = out.splitlines()
    assert [line for line in [*ARRAYS, "asked ['n2', 'n2']", "lengths {5000000}", "own 3"] if line not in lines] == []
    assert "does not" not in err and "lost" not in err, err


@pytest.mark.timeout(240)
def test_tools(slow: Cluster, tmp_path: Path) -> None:
    over = tmp_path / "over"
    program = slow.start("work", str(over), program=WORKING)
    wait_until(lambda: slow.meshrt("where", "worker", fails=True).count("next") >= 1, 60, "ranks that work")
    where = slow.meshrt("where", "worker")
    assert "4/4" in where and "no answer" not in where, where
    over.touch()
    out, err = program.communicate(timeout=150)
    assert program.returncode == 0 and "ran 4" in out, out + err


@pytest.mark.timeout(240)
def test_a_lost_machine_is_lost_as_soon(slow: Cluster) -> None:
    program = begun(slow, "lose", "works")
    slow.machines[1].cut()
    cut = time.monotonic()
    out, err = program.communicate(timeout=60)
    lost = time.monotonic() - cut
    assert "HostLost" in out and "its machine (10.7.0.2) has not answered for 10 s" in out, out + err
    assert 10 <= lost <= 16, "12 s, and what a busy machine takes to end the rest"

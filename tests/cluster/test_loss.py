"""What becomes of a program when a machine, or the network between two of them, fails; and when nothing has failed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.machines import Machine, machines
from tests.support.waiting import wait_until

LINKS = Path(__file__).with_name("links.py")

needs_nft = pytest.mark.skipif(not shutil.which("nft"), reason="the program nft is not installed")
#: Seconds for which a process is stopped: more than those after which a machine is lost.
STOPPED = 14
for_long = pytest.mark.parametrize("seconds", [STOPPED, pytest.param(60, marks=pytest.mark.nightly)])


def begun(cluster: Cluster, what: str, line: str, program: Path = LINKS) -> subprocess.Popen[str]:
    """Start a program, and wait until it has printed a line that begins like this."""
    started = cluster.start(what, program=program)
    assert started.stdout is not None
    while not (said := started.stdout.readline()).startswith(line):
        assert said, started.communicate()
    return started


def tell(program: subprocess.Popen[str], line: str) -> str:
    """Tell a program a line; returns the one that it prints then."""
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write(line + "\n")
    program.stdin.flush()
    return program.stdout.readline()


def agent_of(cluster: Cluster, number: int) -> int:
    """Return the pid of the agent of a machine."""
    found = [pid for pid, line in cluster.machines[number].processes().items() if "agent_main" in line]
    return min(found)  # its ranks are forks of it


@pytest.mark.nightly
@pytest.mark.row("H1")
def test_the_error_says_which_machine_when_and_why(cluster: Cluster) -> None:
    program = cluster.start("lose", program=LINKS)
    assert program.stdout is not None
    said = ""
    while "works\n" not in said or "line 2 " not in said:
        line = program.stdout.readline()
        assert line, program.communicate()
        said += line
    cluster.machines[1].cut()
    while "HostLost" not in (line := program.stdout.readline()):  # lines of the rank come before it
        assert line
    error = line + program.stdout.read()
    assert "HostLost" in error and "rank 1 (hosts=1, gpus=0) on n2, pid " in error, error
    assert "its machine (10.7.0.2) has not answered for 10 s" in error
    unheard = re.search(r"its last network packet arrived (\d+\.\d) s before, at \d\d:\d\d:\d\d", error)
    assert unheard and 10 <= float(unheard[1]) <= 13, "12 by the record, and what its looks take on a busy machine"
    assert "its last lines:" in error and "  | line 2 xxx" in error


@pytest.mark.nightly
@pytest.mark.row("H1")
@pytest.mark.parametrize("how", [Machine.cut, Machine.power_off])
def test_a_machine_is_lost_ten_to_twelve_seconds_after_the_last_sign_of_it(how: Callable[[Machine], None]) -> None:
    """From the fault to the error of the call that waits. Not earlier: a short fault loses no machine."""
    with machines(2) as made:
        program = begun(Cluster(made), "lose", "works")
        assert program.stdout is not None
        fault = time.monotonic()
        how(made[1])
        while "HostLost" not in (line := program.stdout.readline()):
            assert line, program.communicate()
        lost = time.monotonic() - fault
        program.communicate(timeout=60)
    assert 10 <= lost <= 12


@pytest.mark.row("H3")
@pytest.mark.nightly
def test_a_machine_that_is_paused_ends_its_ranks_when_it_goes_on(cluster: Cluster) -> None:
    program = begun(cluster, "loss", "hangs", Path(__file__).with_name("program.py"))
    second = cluster.machines[1]
    second.freeze()
    second.cut()  # nor does its kernel answer
    out, err = program.communicate(timeout=60)
    assert "HostLost" in out, out + err
    assert second.processes()
    second.plug()
    second.thaw()
    wait_until(lambda: not second.processes(), 10, "the ranks of a machine that was paused")


@pytest.mark.nightly
@for_long
def test_an_agent_that_is_stopped_is_not_lost(cluster: Cluster, seconds: int) -> None:
    program = begun(cluster, "again", "first")
    agent = agent_of(cluster, 1)
    os.kill(agent, signal.SIGSTOP)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert tell(program, "stopped") == "stopped echoed {1000}\n"
        time.sleep(1)
    os.kill(agent, signal.SIGCONT)
    assert tell(program, "goes on") == "goes on echoed {1000}\n"
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0 and "lost" not in out + err, out + err


@pytest.mark.row("C2b")
@pytest.mark.nightly
@for_long
def test_a_script_that_is_stopped_does_not_lose_its_hosts(cluster: Cluster, seconds: int) -> None:
    """What its ranks print fills their connections: nobody reads them, and yet its machine answers."""
    program = begun(cluster, "quiet", "talk")
    script = program.pid
    os.kill(script, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(script, signal.SIGCONT)
    out, err = program.communicate("go on\n", timeout=150)
    assert program.returncode == 0 and "hosts n1 n2" in out, out[-1000:] + err[-1000:]


@pytest.mark.nightly
@needs_nft
@pytest.mark.row("H4")
def test_two_machines_that_lose_each_other_find_a_way_through_the_script(cluster: Cluster) -> None:
    program = begun(cluster, "again", "first")
    first, second = cluster.machines
    first.filter(*(f"{way} drop" for way in (f"in ip saddr {second.address}", f"in ip6 saddr {second.address6}")))
    lines = [tell(program, "cut") for _ in range(2)]
    assert "LinkLost" in lines[0] or "echoed" in lines[0], lines
    assert lines[1] == "cut echoed {1000}\n", lines
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0 and "host n1 (10.7.0.1) cannot connect to host n2" in err, out + err
    assert "HostLost" not in lines[0] and "gone" not in err


@needs_nft
@pytest.mark.nightly
def test_a_call_that_is_lost_between_two_machines_fails_alone(cluster: Cluster) -> None:
    program = begun(cluster, "pending", "waits")
    first, second = cluster.machines
    first.filter(f"in ip saddr {second.address} drop", f"in ip6 saddr {second.address6} drop")
    out, err = program.communicate(timeout=150)
    assert program.returncode == 0, out + err
    assert "pending LinkLost after " in out and "cannot be reached from here: Connection timed out" in out, out
    assert "next echoed {1000}" in out


@needs_nft
@pytest.mark.nightly
def test_lost_packets_lose_no_machine(cluster: Cluster) -> None:
    for machine in cluster.machines:
        machine.filter("in numgen random mod 100 < 5 drop", "out numgen random mod 100 < 5 drop")
    program = begun(cluster, "again", "first")
    end = time.monotonic() + STOPPED
    while time.monotonic() < end:
        assert tell(program, "lossy") == "lossy echoed {1000}\n"
        time.sleep(0.5)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0 and "lost" not in out + err, out + err

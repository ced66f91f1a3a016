"""Large arrays and references between machines: once to each, from host to host, also past a host that is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.machines import Machine, machines
from tests.support.waiting import wait_until

PROGRAM = Path(__file__).with_name("arrays.py")
MIB = 1 << 20
#: Bytes of the array that the program sends.
SIZE = 32 * MIB


@pytest.fixture(scope="module")
def _machines() -> Iterator[list[Machine]]:
    with machines(3) as made:
        yield made


class Program:
    """A run of ``arrays.py`` on all machines.

    Attributes:
        said: What it has said on standard error, once `lines` has returned.
    """

    def __init__(self, cluster: Cluster, what: str, agents: Mapping[str, Sequence[str]] | None = None) -> None:
        self._process = cluster.start(what, program=PROGRAM, agents=agents)

    def says(self, line: str) -> None:
        """Wait for a line."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line + "\n", self._process.communicate(timeout=100)

    def go_on(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def lines(self) -> list[str]:
        """Return what it prints until it ends."""
        out, self.said = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, out + self.said
        return out.splitlines()


@pytest.fixture
def three(_machines: list[Machine]) -> Iterator[Cluster]:
    """Three machines that nothing runs on, before and after, and nothing is left in memory."""
    made = Cluster(_machines)
    yield made
    made.clear()
    for machine in made.machines:
        assert machine.run("ls", "/dev/shm").stdout == ""


@pytest.mark.slow
def test_an_array_to_all_ranks_goes_from_host_to_host(three: Cluster) -> None:
    program = Program(three, "once")
    program.says("ready")
    before = [machine.traffic() for machine in three.machines]
    program.go_on()
    program.says("sent")
    after = [machine.traffic() for machine in three.machines]
    sent = sorted((new[0] - old[0]) / SIZE for old, new in zip(before, after, strict=True))
    received = [(new[1] - old[1]) / SIZE for old, new in zip(before, after, strict=True)]
    assert all(1.0 <= each <= 1.05 for each in received), "once to each machine"
    assert sent[0] < 0.05 and all(1.0 <= each <= 1.05 for each in sent[1:]), "all but the last have sent it on"
    assert sum(received) - sum(sent) < 1.05, "the machine of the script has sent it once"
    program.go_on()
    assert program.lines() == [
        f"totals {{{SIZE}}} fetched [0, 32, 32, 32]",  # the script's own store has fetched nothing
        f"totals {{{2 * SIZE}}} fetched [0, 64, 64, 64]",
        "free True",
    ]


def referred(machines: int) -> list[str]:
    """What ``references`` prints: each machine fetches an array once, and the script's own store none of them."""
    fetched = [0] + [32] * machines
    return [
        "writable {False}",
        f"totals {{{SIZE}}} fetched {fetched}",
        f"again {fetched}",
        f"returned {5 * MIB} False",
        f"theirs {5 * MIB}",
        f"passed [False, False] {{{5 * MIB}}}",
        "results {3}",
        "views True",
        "free True",
    ]


@pytest.mark.slow
def test_references_results_and_views(three: Cluster) -> None:
    assert Program(three, "references").lines() == referred(3)


@pytest.mark.nightly
@pytest.mark.parametrize("hidden", [[0], [1], [0, 1]], ids=["the first", "the second", "both"])
def test_references_of_machines_that_let_nothing_in(cluster: Cluster, hidden: list[int]) -> None:
    machines = [cluster.machines[number] for number in hidden]
    program = Program(cluster, "references", cluster.hidden(*machines))
    assert program.lines() == referred(2)
    for machine in machines:
        (other,) = (each for each in cluster.machines if each is not machine)
        said = f"cannot connect to host {machine.name} (127.0.0.1 port "
        assert program.said.count(f"the script (10.7.0.254) {said}") == 1, program.said
        # Once for its ranks and its store; not if the hidden one has connected the two stores before.
        assert program.said.count(f"host {other.name} ({other.address}) {said}") <= 1, program.said
        assert program.said.count(said) <= 2, program.said


@pytest.mark.nightly
def test_an_array_to_machines_that_let_nothing_in(three: Cluster) -> None:
    """The first two of the chain: once to each machine all the same."""
    program = Program(three, "once", three.hidden(*three.machines[:2]))
    program.says("ready")
    program.go_on()
    program.says("sent")
    program.go_on()
    assert program.lines() == [
        f"totals {{{SIZE}}} fetched [0, 32, 32, 32]",
        f"totals {{{2 * SIZE}}} fetched [0, 64, 64, 64]",
        "free True",
    ]


@pytest.mark.slow
def test_what_a_rank_has_sent_outlives_its_host(three: Cluster) -> None:
    program = Program(three, "sender_ends")
    program.says("kept")
    three.machines[0].end_processes()
    program.go_on()
    assert program.lines() == ["first HostLost", f"totals {{{4 * SIZE}}}"]


@pytest.mark.slow
def test_the_agent_that_has_the_store_of_the_script_ends(three: Cluster) -> None:
    assert Program(three, "home_ends").lines() == [f"held {{{SIZE}}}", f"again {{{SIZE}}}", "another True"]


def chained(cluster: Cluster) -> Program:
    """A program whose array is on its way, and goes from the second machine to the third."""
    program = Program(cluster, "lost")
    program.says("ready")
    first, _, third = cluster.machines
    # Slow enough that the chain is there before it has all arrived: the rate is that of each cable.
    for machine in cluster.machines:
        machine.limit("60mbit")
    before = first.traffic()[1], third.traffic()[1]
    program.go_on()
    program.says("sending")
    wait_until(lambda: third.traffic()[1] - before[1] > SIZE / 8, 60, "the last host receives")
    assert first.traffic()[1] - before[0] < SIZE
    return program


@pytest.mark.nightly
@pytest.mark.parametrize("how", [Machine.cut, Machine.end_processes])
def test_a_host_that_is_lost_in_the_middle_is_skipped(three: Cluster, how: Callable[[Machine], None]) -> None:
    program = chained(three)
    how(three.machines[1])
    assert program.lines() == [f"0 {{{SIZE}}}", "1 HostLost", f"2 {{{SIZE}}}"]


@pytest.mark.nightly
def test_a_host_that_loses_power_is_skipped() -> None:
    with machines(3) as made:
        cluster = Cluster(made)
        program = chained(cluster)
        made[1].power_off()
        assert program.lines() == [f"0 {{{SIZE}}}", "1 HostLost", f"2 {{{SIZE}}}"]
        wait_until(lambda: not made[0].processes() and not made[2].processes(), 20, "processes are left on a machine")


@pytest.mark.nightly
def test_a_host_that_is_frozen_in_the_middle_is_skipped_and_not_lost(three: Cluster) -> None:
    program = chained(three)
    _, second, third = three.machines
    second.freeze()
    try:
        before = third.traffic()[1]
        wait_until(lambda: third.traffic()[1] - before > SIZE * 6 / 8, 60, "the last host goes on at another one")
    finally:
        second.thaw()
    assert program.lines() == [f"{host} {{{SIZE}}}" for host in range(3)]

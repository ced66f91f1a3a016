"""Which hosts have joined, and which of them a mesh gets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from meshrt.engine.launch import hosts
from meshrt.engine.launch.hosts import LaunchEngine, identity, needed
from meshrt.engine.launch.launchers import Launched
from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.engine import Arrival, Refusal, Request
from meshrt.transport.link import Link


@pytest.mark.parametrize(
    ("ranks", "there", "gpus", "count"),
    [
        (32, 4, 8, 4),
        (16, 4, 8, 2),
        (8, 4, 8, 1),
        (12, 4, 8, 2),
        (20, 4, 8, 4),
        (21, 4, 8, 3),
        (40, 4, 8, 0),
        (23, 4, 8, 0),
        (8, 4, 0, 4),
        (6, 4, 0, 3),
        (7, 4, 0, 1),
        (2, 4, 0, 2),
    ],
)
def test_how_many_hosts_get_ranks(ranks: int, there: int, gpus: int, count: int) -> None:
    assert needed(ranks, there, gpus) == count


class Bench:
    """An engine of three hosts, whose agents are socket pairs."""

    made: ClassVar[list[Bench]] = []

    def __init__(self, fewest: int, seconds: float = 0.0) -> None:
        Bench.made.append(self)
        self.links: list[Link] = []
        self.arrivals: list[Arrival | Refusal] = []
        self.ends: list[socket.socket] = []
        self.said: list[str] = []
        self.complete: list[bool] = []
        invitation = SimpleNamespace(text=lambda: b"text", accept=self._accept)
        self.program: Any = SimpleNamespace(invite_all=lambda _secret, _port: invitation, new_mark=lambda: "mark")
        found = Launched("SLURM", 0, 3, names=("n1", "n2", "n3"))
        self.engine = LaunchEngine(found, fewest, seconds, self.said.append)
        self.engine.on_complete.append(lambda: self.complete.append(True))
        assert self.engine.open(self.program, b"", 0) == b"text"

    def _accept(self, seconds: float) -> Arrival | Refusal | None:
        return self.arrivals.pop(0) if self.arrivals else None

    def join(self, index: int, gpus: int = 0) -> None:
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        self.links.append(Link(ours))
        self.arrivals.append(Arrival(f"{index}/{gpus}/n{index + 1}", 7 + index, self.links[-1]))

    def placed(self, hosts: int | None, ranks: int = 6) -> list[str]:
        return [each.host for each in self.engine.place(self.program, Request(hosts, ranks), [])]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Host 0 is n1, and starts no agent; links are closed at the end."""
    local = SimpleNamespace(place=lambda _program, _request, living: living or [SimpleNamespace(host="n1", machine=0)])
    monkeypatch.setattr(hosts, "LocalEngine", lambda: local)
    monkeypatch.setattr("meshrt.engine.launch.hosts.socket.gethostname", lambda: "n1")
    monkeypatch.setattr(hosts, "_LOOK", 0.01)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Bench.made.clear()
    yield
    for bench in Bench.made:
        for link in bench.links:
            link.close()
        for end in bench.ends:
            end.close()


def test_hosts_are_in_the_order_of_the_launcher() -> None:
    bench = Bench(3)
    bench.join(2)
    assert bench.complete == []
    bench.join(1)
    assert bench.placed(None) == ["n1", "n2", "n3"]
    assert bench.complete == [True]
    assert bench.placed(2) == ["n1", "n2"] and bench.placed(1) == ["n1"]
    assert bench.placed(None, 2) == ["n1", "n2"]


def test_a_mesh_is_all_hosts_and_the_gpus_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    bench = Bench(3)
    bench.join(1, 2)
    bench.join(2, 2)
    assert list(bench.engine.sizes({}).items()) == [("hosts", 3), ("gpus", 2)]
    assert bench.engine.sizes({"hosts": 2}) == {"hosts": 2, "gpus": 2}
    assert list(bench.engine.sizes({"gpus": 8}).items()) == [("hosts", 3), ("gpus", 8)]
    assert bench.engine.sizes({"dp": 2, "tp": 2}) == {"dp": 2, "tp": 2}
    assert list(bench.engine.sizes({"gpus": 1, "hosts": 9}).items()) == [("gpus", 1), ("hosts", 9)]
    wrong: Any = {"hosts": "2"}
    assert bench.engine.sizes(wrong) == wrong
    assert bench.placed(None, 4) == ["n1", "n2"]
    with pytest.raises(UsageError, match="7 ranks cannot be divided among 3 hosts with 2 GPUs each"):
        bench.placed(None, 7)
    assert identity(5) == "5/2/n1"
    bench.join(2, 4)  # the launcher has started it again, on another machine
    with pytest.raises(UsageError, match=r"different numbers of GPUs \(n1: 2, n2: 2, n3: 4\): set their number"):
        bench.engine.sizes({})


def test_without_gpus_there_is_one_process_for_each_host() -> None:
    bench = Bench(2)
    bench.join(2)
    assert bench.engine.sizes({}) == {"hosts": 2}


def test_a_host_that_is_late_is_there_for_the_next_mesh_and_one_that_is_lost_is_not() -> None:
    bench = Bench(1)
    assert bench.placed(None) == ["n1"]
    bench.join(1)
    assert bench.placed(None) == ["n1", "n2"]
    bench.ends[0].close()
    assert bench.placed(None) == ["n1"]
    with pytest.raises(
        SpawnError, match=r"1 of 2 hosts have joined after 0 s; missing: index 1-2 \(n2, n3\); see the output"
    ):
        bench.placed(2)
    with pytest.raises(UsageError, match=r"hosts=4, but the number of hosts is 3 \(SLURM\)"):
        bench.placed(4)


def test_the_fewest_are_waited_for_once() -> None:
    bench = Bench(3)
    bench.join(1)
    with pytest.raises(SpawnError, match="2 of 3 hosts have joined"):
        bench.placed(None)
    bench.join(2)
    assert bench.placed(None) == ["n1", "n2", "n3"]
    bench.ends[0].close()
    assert bench.placed(None) == ["n1", "n3"]


def test_a_host_of_another_version_is_not_waited_for() -> None:
    bench = Bench(3, 60.0)
    bench.arrivals.append(Refusal("2/0/n3", "host n3 runs Python 2.7.1, the script Python 3.11.7"))
    with pytest.raises(SpawnError, match=r"^host n3 runs Python 2.7.1, the script Python 3.11.7$"):
        bench.placed(None)
    assert bench.said == [], "the error says it"
    bench.join(2)  # the launcher has started it again, with another interpreter
    bench.join(1)
    assert bench.placed(None) == ["n1", "n2", "n3"]


def test_a_host_of_another_version_is_said_where_the_others_are_enough() -> None:
    bench = Bench(2, 60.0)
    bench.arrivals.append(Refusal("2/0/n3", "host n3 has meshrt 0.2.0"))
    bench.join(1)
    assert bench.placed(None) == ["n1", "n2"]
    assert bench.said == ["a host was rejected: host n3 has meshrt 0.2.0"]
    with pytest.raises(SpawnError, match=r"^host n3 has meshrt 0.2.0$"):
        bench.placed(3)


def test_it_is_said_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 6.0, 7.0, 60.0])
    monkeypatch.setattr("meshrt.engine.launch.hosts.time.monotonic", lambda: next(times))
    bench = Bench(3, 60.0)
    bench.join(2)
    with pytest.raises(SpawnError, match="2 of 3 hosts have joined after 60 s"):
        bench.placed(None)
    assert bench.said == ["2 of 3 hosts have joined after 6 s; missing: index 1 (n2); the time limit is in 54 s"]


def test_an_agent_of_a_launcher_is_ended_by_its_link() -> None:
    bench = Bench(2)
    bench.join(1)
    _, agent = bench.engine.place(bench.program, Request(2, 2), [])
    assert not agent.wait(0.0) and not agent.resume() and (agent.machine, agent.mark) == (8, "mark")
    agent.kill()
    assert bench.ends[0].recv(1) == b"" and agent.wait(0.0)
    agent.link.close()
    agent.kill()
    assert agent.wait(0.0)


def test_hosts_of_another_job_are_not_taken() -> None:
    bench = Bench(1)
    bench.join(3)
    bench.join(0)
    assert bench.placed(None) == ["n1"]
    assert bench.said[0] == "host n4 was rejected: it has index 3 of 3 hosts" and len(bench.said) == 2
    assert [end.recv(1) for end in bench.ends] == [b"", b""]


def test_a_second_program_has_no_hosts() -> None:
    bench = Bench(1)
    bench.program = SimpleNamespace()
    with pytest.raises(SpawnError, match="a script that is launched has one program"):
        bench.placed(None)

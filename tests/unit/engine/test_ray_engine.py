"""Agents on a Ray cluster that is played: which bundles they get, what is waited for, what is left of a failure."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from meshrt.engine import ray_engine
from meshrt.engine.ray_agent import RayAgent
from meshrt.engine.ray_engine import RayEngine
from meshrt.engine.ray_needs import Node, Resources
from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.engine import Request
from meshrt.transport.link import Link
from meshrt.wire.frames import control_decoder
from tests.support.waiting import wait_until


class Invitation:
    machine = 5

    def __init__(self, link: Link | None) -> None:
        self.link = link
        self.withdrawn = False

    def text(self) -> bytes:
        return b"invitation"

    def accept(self, seconds: float) -> Link | None:
        return self.link

    def withdraw(self) -> None:
        self.withdrawn = True


class Program:
    run_id = "cafe"
    directory = b"/d"

    def __init__(self) -> None:
        self.said: list[str] = []
        self.joins = True
        self.ends: list[socket.socket] = []
        self._marks = 0

    def new_mark(self) -> str:
        self._marks += 1
        return f"cafe.{self._marks}"

    def announce(self, text: str) -> None:
        self.said.append(text)

    def invite(self) -> Any:
        if not self.joins:
            return Invitation(None)
        ours, theirs = socket.socketpair()
        self.ends += [ours, theirs]
        return Invitation(Link(ours, control_decoder()))


class Reply:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def get(self, seconds: float | None = None) -> Any:
        return self._answer()


class Actor:
    """``start`` answers at once; ``read`` with what the test puts there."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self.cluster = cluster
        self.host = host
        self.output: queue.SimpleQueue[bytes | int | Exception] = queue.SimpleQueue()

    def call(self, name: str, *arguments: object) -> Reply:
        if name == "start":
            assert arguments[0] == b"invitation"
            return Reply(lambda: (self.host, self.cluster.problem))
        return Reply(self._read)

    def _read(self) -> bytes | int:
        value = self.output.get()
        if isinstance(value, Exception):
            raise value
        return value

    def kill(self) -> None:
        self.output.put(ChildProcessError("it was killed"))


class Group:
    def __init__(
        self, cluster: Cluster, name: str, bundle: Resources, hosts: int, strategy: str, apart: Sequence[str]
    ) -> None:
        self.number = len(cluster.groups)
        self.cluster, self.bundle, self.hosts, self.strategy, self.apart = cluster, bundle, hosts, strategy, apart
        self.free = list(range(hosts))
        self.lock = threading.Lock()
        cluster.groups.append(self)

    def ready(self) -> bool:
        self.cluster.asked(self)
        return self.cluster.places and self.number not in self.cluster.unplaced

    def places(self) -> dict[int, str]:
        first = sum(group.hosts for group in self.cluster.groups[: self.number])
        return {index: f"id{first + index}" for index in range(self.hosts)} if self.cluster.places else {}

    def node_of(self, bundle: int) -> str:
        return self.places()[bundle]

    def take(self, most: int) -> list[int]:
        taken, self.free = self.free[:most], self.free[most:]
        return taken

    def start(self, bundle: int, runtime_env: object) -> Actor:
        self.cluster.actors.append(Actor(self.cluster, self.cluster.hosts.get(bundle, f"host{self.number}.{bundle}")))
        return self.cluster.actors[-1]

    def release(self, bundle: int) -> None:
        with self.lock:
            self.free.append(bundle)


class Cluster:
    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.actors: list[Actor] = []
        self.hosts: dict[int, str] = {}
        self.places = True
        self.unplaced: set[int] = set()
        self.problem = ""
        #: Called when a group is asked whether it is placed.
        self.asked: Callable[[Group], object] = lambda group: None

    def all_free(self) -> bool:
        return all(len(group.free) == group.hosts for group in self.groups)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(ray_engine, "connect", lambda: None)
    monkeypatch.setattr(
        ray_engine, "nodes", lambda: [Node(f"id{n}", f"n{n}", {"CPU": 4}, {"CPU": 4}) for n in range(3)]
    )
    monkeypatch.setattr(ray_engine, "Group", lambda *arguments: Group(made, *arguments))
    return made


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    for end in made.ends:
        end.close()


def end(cluster: Cluster, agents: Sequence[Any]) -> None:
    for agent in agents:
        agent.kill()
        assert agent.wait(20)
        agent.stderr.close()
    assert cluster.all_free()


def test_a_larger_mesh_gets_further_hosts_on_other_nodes(cluster: Cluster, program: Program) -> None:
    engine = RayEngine()
    first = engine.place(program, Request(2, 4), [])
    assert [agent.host for agent in first] == ["host0.0", "host0.1"]
    assert cluster.groups[0].bundle == {"CPU": 2}
    assert engine.place(program, Request(1, 1), first) == [first[0]]
    larger = engine.place(program, Request(3, 3), first)
    assert larger[:2] == first and len(larger) == 3
    assert (cluster.groups[1].hosts, cluster.groups[1].apart) == (1, ["id0", "id1"])
    end(cluster, larger)


def test_a_lost_host_is_replaced_in_its_bundle(cluster: Cluster, program: Program) -> None:
    engine = RayEngine()
    first, second = engine.place(program, Request(2, 2), [])
    cluster.actors[0].output.put(ChildProcessError("its node has died"))
    assert first.wait(20)
    assert first.said_of_end() == "Ray says: its node has died"
    assert program.said == ["host host0.0: Ray says: its node has died"]
    again = engine.place(program, Request(2, 2), [second])
    assert again[1] is second and again[0] is not first and len(cluster.groups) == 1
    assert isinstance(first, RayAgent) and first.stderr is not None
    first.stderr.close()
    end(cluster, again)


def test_a_loss_that_ray_has_not_noticed_is_replaced_on_another_node(cluster: Cluster, program: Program) -> None:
    engine = RayEngine()
    first, second = engine.place(program, Request(2, 2), [])
    again = engine.place(program, Request(2, 2), [second])
    assert again[0] is second and len(cluster.groups) == 2
    assert cluster.groups[1].apart == ["id0", "id1"]
    end(cluster, [first, *again])


def test_a_lost_bundle_that_is_placed_first_is_used(cluster: Cluster, program: Program) -> None:
    engine = RayEngine()
    first, second = engine.place(program, Request(2, 2), [])
    cluster.unplaced = {1}

    def notice(group: Group) -> None:
        if group.number == 1:
            first.kill()
            assert first.wait(20)

    cluster.asked = notice
    again = engine.place(program, Request(2, 2), [second])
    assert again[1] is second and again[0] is not first
    assert len(cluster.groups[1].free) == 1
    assert isinstance(first, RayAgent) and first.stderr is not None
    first.stderr.close()
    end(cluster, again)


def test_hosts_on_one_node_have_names_of_their_own(cluster: Cluster, program: Program) -> None:
    cluster.hosts = {0: "n1", 1: "n1", 2: "n2"}
    agents = RayEngine("PACK").place(program, Request(3, 3), [])
    assert [agent.host for agent in agents] == ["n1", "n1~1", "n2"]
    end(cluster, agents)


def test_what_is_waited_for_is_said_and_given_up(
    cluster: Cluster, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.places = False
    monkeypatch.setattr(ray_engine, "_QUIET", 0.05)
    with pytest.raises(
        SpawnError,
        match=r"with CPU 1 each: CPU 1 is free for 3 of 4 hosts; .*; RayEngine\(timeout=0.2\) has expired",
    ):
        RayEngine(timeout=0.2).place(program, Request(4, 4), [])
    assert program.said[0].startswith("Ray has not placed 4 hosts with CPU 1 each: CPU 1 is free for 3")
    assert cluster.all_free() and not cluster.actors


def test_a_host_that_cannot_start_an_agent_is_named(cluster: Cluster, program: Program) -> None:
    cluster.problem = "there is no meshrt"
    with pytest.raises(SpawnError, match=r"the agent of host host0\.0 cannot be started: there is no meshrt"):
        RayEngine().place(program, Request(2, 2), [])
    wait_until(cluster.all_free, 20)


def test_an_agent_that_ends_has_its_last_words_in_the_error(
    cluster: Cluster, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.joins = False
    started = Group.start

    def start(group: Group, bundle: int, runtime_env: object) -> Actor:
        actor = started(group, bundle, runtime_env)
        actor.output.put(b"no route to host\n")
        actor.output.put(1)
        return actor

    monkeypatch.setattr(Group, "start", start)
    with pytest.raises(SpawnError, match=r"ended before it joined, with exit status 1: no route to host"):
        RayEngine().place(program, Request(1, 1), [])


def test_one_that_does_not_join_is_ended(cluster: Cluster, program: Program) -> None:
    program.joins = False
    with pytest.raises(SpawnError, match=r"the agent of host0\.0 has not joined the program; RayEngine"):
        RayEngine(timeout=0.2).place(program, Request(1, 1), [])
    wait_until(cluster.all_free, 20)


def test_arguments_are_checked() -> None:
    with pytest.raises(UsageError, match="strategy is one of STRICT_SPREAD, SPREAD, PACK, STRICT_PACK, not 'SPRED'"):
        RayEngine("SPRED")
    with pytest.raises(UsageError, match="timeout is a positive number of seconds, not 0"):
        RayEngine(timeout=0)

"""Ways through the root: who is asked to dial, what is connected with what, and what the user is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.errors import MeshError
from meshrt.hooks.fate import Fate
from meshrt.mesh.relays import Relays
from meshrt.transport.driver import Driver
from meshrt.wire.addresses import HostAddress, RankAddress
from meshrt.wire.operations import Relayed, RelayTo
from meshrt.wire.tree import Dial
from tests.unit.mesh.root_fakes import FakeAgent, FakeLoop, record
from tests.unit.transport.fake_rank import SECRET, FakeTree

ROOT = ("10.0.0.1", 4000)


class Bench:
    """A mesh with a rank on n1 and one on n2, which reaches the root at an address of its own."""

    def __init__(self) -> None:
        self.agents: list[Any] = [FakeAgent("n1"), FakeAgent("n2")]
        for machine, (agent, port) in enumerate(zip(self.agents, [None, ("192.168.0.1", 4000)], strict=True), 1):
            agent.machine, agent.root_port = machine, port
            agent.peer = f"10.0.0.{machine + 1}", 50000
        self.driver = Driver(SECRET, FakeTree())
        self.mesh = record(self.driver, *self.agents)
        self.said: list[str] = []
        self.peers: list[socket.socket] = []
        self.loop = FakeLoop()
        loop: Any = self.loop
        self.serve: Any = None
        services: Any = SimpleNamespace(announce=self.said.append, serve_ranks_later=self._serves)
        registry: Any = SimpleNamespace(meshes={"m": self.mesh}, own={"script"})
        run: Any = SimpleNamespace(ports=(ROOT,))
        self.relays = Relays(registry, services, run, loop)

    def _serves(self, operation: type[RelayTo], handler: Any) -> None:
        assert operation is RelayTo
        self.serve = handler

    def asked(self, asker: int, mesh: str, rank: int, why: str = "silence") -> Relayed:
        answers: list[Relayed] = []
        self.serve(("m", asker), RelayTo(mesh, rank, why), answers.append)
        (answer,) = answers
        return answer

    def peer(self, name: str) -> socket.socket:
        """Connect and ask for a name; returns the end of the peer."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        theirs.settimeout(20)
        self.peers.append(theirs)
        self.relays.take(name, ours)
        return theirs

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self.relays.close()
        self.driver.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.mark.parametrize("first", [0, 1])
def test_two_ranks_are_connected_whoever_dials_first(bench: Bench, first: int) -> None:
    answer = bench.asked(1, "m", 0)
    assert answer.port == ("192.168.0.1", 4000), "where its machine reaches the root"
    (dial,) = bench.agents[0].sent
    assert (dial.target, dial.port) == ("rank/m/0", ROOT) and dial.name != answer.name
    names = [answer.name, dial.name]
    peers = {name: bench.peer(name) for name in (names[first], names[1 - first])}
    peers[names[0]].sendall(b"question")
    assert peers[names[1]].recv(100) == b"question"


def test_a_name_is_good_for_one_connection(bench: Bench) -> None:
    answer = bench.asked(1, "m", 0)
    first, second = bench.peer(answer.name), bench.peer(answer.name)
    assert second.recv(1) == b""
    first.setblocking(False)
    with pytest.raises(BlockingIOError):
        first.recv(1)
    assert bench.peer("relay/guess").recv(1) == b""


def test_what_the_script_sends_needs_one_connection(bench: Bench) -> None:
    opened: list[Any] = []
    address = RankAddress(HostAddress(5, 1, b"/d", (("10.0.0.2", 1),)), "m", 1)
    bench.relays.to_script(address, "silence", opened.append)
    (dial,) = bench.agents[1].sent
    assert isinstance(dial, Dial) and dial.target == "rank/m/1" and opened == []
    peer = bench.peer(dial.name)
    (sock,) = opened
    sock.sendall(b"hello")
    assert peer.recv(100) == b"hello"
    sock.close()


def test_who_does_not_dial_in_time(bench: Bench) -> None:
    opened: list[Any] = []
    bench.relays.to_script(RankAddress(HostAddress(5, 1, b"/d"), "m", 1), "silence", opened.append)
    peer = bench.peer(bench.asked(1, "m", 0).name)
    bench.loop.pass_time()
    assert isinstance(opened[0], TimeoutError) and peer.recv(1) == b""


def test_two_stores_are_connected(bench: Bench) -> None:
    first, second = bench.agents
    way = bench.relays.to_store(second, first, "silence")
    assert way.port == ("192.168.0.1", 4000)
    (dial,) = first.sent
    assert (dial.target, dial.port) == ("store", ROOT)
    peers = [bench.peer(name) for name in (way.name, dial.name)]
    peers[0].sendall(b"question")
    assert peers[1].recv(100) == b"question"


def test_a_host_that_is_lost_before_it_has_dialled(bench: Bench) -> None:
    early = bench.peer(bench.asked(1, "m", 0).name)
    late, other = bench.asked(1, "m", 0).name, bench.peer(bench.asked(0, "m", 1).name)
    bench.relays.gone(bench.agents[0])
    assert early.recv(1) == b"" and bench.peer(late).recv(1) == b""
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)


def test_a_rank_that_has_ended(bench: Bench) -> None:
    bench.mesh.fates[0] = Fate("died")
    opened: list[Any] = []
    bench.relays.to_script(RankAddress(HostAddress(5, 1, b"/d"), "m", 0), "silence", opened.append)
    assert isinstance(opened[0], ConnectionError)
    with pytest.raises(MeshError, match="it has ended"):
        bench.asked(1, "m", 0)
    assert bench.said == [] and bench.agents[0].sent == []


def test_the_script_itself_is_reached_by_its_port(bench: Bench) -> None:
    assert bench.asked(1, "script", 0) == Relayed(("192.168.0.1", 4000), "rank/script/0")
    assert bench.said == []


def test_it_is_said_once_for_each_pair_of_hosts(bench: Bench) -> None:
    home: Any = FakeAgent("the script's machine")
    home.root_port = None
    for _ in range(3):
        bench.asked(1, "m", 0, "10.0.0.2 port 5: no answer in time")
        bench.relays.to_store(bench.agents[1], bench.agents[0], "another reason")
        bench.relays.to_script(RankAddress(HostAddress(5, 1, b"/d"), "m", 1), "the same", lambda _: None)
        bench.relays.to_store(home, bench.agents[1], "another reason")
    assert bench.said == [
        "host n2 (10.0.0.3) cannot connect to host n1 (10.0.0.2 port 5: no answer in time); "
        "data for that host goes through the script, which is slower",
        "the script (192.168.0.1) cannot connect to host n2 (the same); "
        "data for that host goes through connections that the host opens",
    ]

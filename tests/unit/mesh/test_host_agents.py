"""Host agents as the root has them: what they are greeted with, whose store serves, and what their end leads to.

An agent is a process that sleeps, with a link whose other end the test holds.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from meshrt.engine.local import LocalAgent
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.engine import Placed, Program, Request
from meshrt.mesh.home import Home
from meshrt.mesh.host_agents import HostAgents, _short
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.registry import Registry
from meshrt.transport.link import Link
from meshrt.wire.addresses import Way
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.tree import FROM_ROOT, AskWay, Bye, Hello, Serves, StoreWay, Warn
from tests.support.waiting import wait_until

M = TypeVar("M", bound=Message)


class Engine:
    """Places one agent."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        if living:
            return living
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(["sleep", "60"], stderr=subprocess.PIPE)
        self.ends.append(theirs)
        self.processes.append(process)
        return [LocalAgent("node1", program.new_mark(), process, Link(ours, control_decoder()), program.directory)]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for end in self.ends:
            end.close()


class Bench:
    """The agents of one root; everything else in it is played."""

    def __init__(self, directory: Path) -> None:
        self.loop = RootLoop()
        self.lost: list[AgentLink] = []
        self.said: list[str] = []
        self.looks = 0
        run: Any = SimpleNamespace(
            run_id="cafe",
            secret=b"s" * 32,
            directory=str(directory),
            run_directory=directory / "run",
            pid=4711,
            certificate=None,
            limits=SimpleNamespace(store=1000, logs=2000),
        )
        self.ways: list[tuple[AgentLink, AgentLink, str]] = []

        def to_store(*asked: Any) -> Way:
            self.ways.append(asked)
            return Way(("10.0.0.1", 4), "relay/abc")

        part: Any = SimpleNamespace(
            lose=self.lost.append,
            measures=SimpleNamespace(gone=lambda _agent: None, others=[]),
            look=lambda: None,
            gone=lambda _agent: None,
            to_store=to_store,
            take=lambda _name, sock: sock.close(),
            announce=self.said.append,
            write=lambda _text, err: None,
        )
        self.home = Home(self.loop)
        self.agents = HostAgents(run, self.loop, Registry(), part, part, part, part, part, self.home, part)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    if not (made.loop.failure or made.loop.has_begun):
        made.loop.begin()  # it closes the links
        wait_until(lambda: made.loop.has_begun, 20)
    made.loop.end()
    made.agents.end()


@pytest.fixture
def engine(bench: Bench) -> Iterator[Engine]:
    made = Engine()
    yield made
    made.end()


def sent_to(end: socket.socket, kind: type[M]) -> M:
    """Return the first message of a kind that an agent is sent."""
    end.settimeout(20)
    decoder = control_decoder()
    while True:
        for frame in decoder.receive_data(end.recv(1 << 20)):
            message = FROM_ROOT.decode(frame.payload)
            if isinstance(message, kind):
                return message


def greeting(end: socket.socket) -> Hello:
    return sent_to(end, Hello)


def test_an_agent_is_told_what_the_program_is(bench: Bench, engine: Engine, tmp_path: Path) -> None:
    (agent,) = bench.agents.of(engine, Request(None, 1))
    hello = greeting(engine.ends[0])
    assert (hello.run_id, hello.host, hello.root_pid) == ("cafe.1", "node1", 4711)
    assert (hello.directory, hello.store_limit, hello.logs_limit) == (str(tmp_path).encode(), 1000, 2000)
    assert hello.families == agent.families
    assert bench.agents.of(engine, Request(None, 1)) == [agent] == bench.agents.all()
    assert bench.home.host_of(agent.pid) == "node1" and bench.home.host_of(1) == ""


def test_the_store_of_an_agent_serves_when_it_says_so(bench: Bench, engine: Engine) -> None:
    assert bench.home.agent(20.0) == 0  # there is no agent
    (agent,) = bench.agents.of(engine, Request(None, 1))
    assert bench.home.agent(0.0) == 0
    bench.loop.begin()
    engine.ends[0].sendall(control_frame(Serves()))
    assert bench.home.agent(20.0) == agent.pid


def test_a_warning_of_an_agent_is_shown(bench: Bench, engine: Engine) -> None:
    bench.agents.of(engine, Request(None, 1))
    bench.loop.begin()
    engine.ends[0].sendall(control_frame(Warn("the disk is full")))
    wait_until(lambda: bench.said == ["the disk is full"], 20)


@pytest.mark.parametrize("lives", [True, False])
def test_a_store_is_given_a_way_to_one_that_it_does_not_reach(bench: Bench, engine: Engine, lives: bool) -> None:
    (agent,) = bench.agents.of(engine, Request(None, 1))
    machine, pid = agent.where[:2]
    bench.loop.begin()
    engine.ends[0].sendall(control_frame(AskWay(machine, pid if lives else pid + 1, "silence")))
    way = Way(("10.0.0.1", 4), "relay/abc")
    expected = StoreWay(machine, pid, way) if lives else StoreWay(machine, pid + 1, None)
    assert sent_to(engine.ends[0], StoreWay) == expected
    assert bench.ways == ([(agent, agent, "silence")] if lives else [])


def test_one_that_ends_is_lost_and_another_one_is_placed(bench: Bench, engine: Engine) -> None:
    (agent,) = bench.agents.of(engine, Request(None, 1))
    bench.loop.begin()
    engine.processes[0].kill()
    engine.ends[0].close()
    wait_until(lambda: bench.lost == [agent], 20)
    assert bench.agents.all() == []
    (other,) = bench.agents.of(engine, Request(None, 1))
    assert other is not agent and bench.agents.all() == [other]


def test_they_are_let_go_at_the_end_of_the_loop(bench: Bench, engine: Engine) -> None:
    bench.agents.of(engine, Request(None, 1))
    bench.loop.begin()
    wait_until(lambda: bench.loop.has_begun, 20)
    bench.loop.end()
    end = engine.ends[0]
    end.settimeout(20)
    received = b"".join(iter(lambda: end.recv(1 << 20), b""))
    sent = [FROM_ROOT.decode(frame.payload) for frame in control_decoder().receive_data(received)]
    assert sent[-1] == Bye()


def test_they_are_killed_when_there_is_no_loop(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise OSError("no descriptor is free")

    monkeypatch.setattr("uvloop.new_event_loop", refuse)
    (agent,) = bench.agents.of(engine, Request(None, 1))
    bench.loop.begin()
    assert engine.processes[0].wait(20) == -9
    wait_until(lambda: agent.gone, 20)
    assert bench.loop.failure and caplog.records[0].levelname == "CRITICAL"


def test_what_ranks_are_told_of_the_arguments_has_a_limit() -> None:
    assert _short(["script.py", "a"]) == ["script.py", "a"]
    assert _short(["script.py", "x" * (1 << 20), "a"]) == ["script.py"]

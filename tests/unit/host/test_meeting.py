"""Processes that ask an agent for a rank: what each of them gets, in every order."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshrt.host.child import Birth, Child, Plumbing
from meshrt.host.meeting import Meeting, meeting_path
from meshrt.host.output import RankLog
from meshrt.wire.addresses import HostAddress
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import control_decoder, pack_header
from meshrt.wire.handshake import HANDSHAKE_SECONDS, UNPROVED_MAX, Secret
from meshrt.wire.meeting import FROM_MEETING, AskToJoin, FromMeeting, Ready, Refused, Welcome
from meshrt.wire.messages import CONTROL


def birth(rank: int, directory: Path) -> Birth:
    address = HostAddress(0, os.getpid(), os.fsencode(directory))
    return Birth("m", "run", rank, ["n"], [2], {}, "0", address, Secret(b"secret"), "host", [], 0, -1, "/run", "", [])


class Agent:
    """The part of an agent that meets two ranks."""

    def __init__(self, directory: Path) -> None:
        self.selector = selectors.DefaultSelector()
        self.born: list[tuple[int, int]] = []
        self.children: list[Child] = []
        births = [birth(rank, directory) for rank in range(2)]
        self.later: list[Callable[[], None]] = []
        self.meeting = Meeting(
            self.selector, "job", births, self._prepare, self._born, lambda _seconds, action: self.later.append(action)
        )

    def _prepare(self, made: Birth) -> tuple[Child, Plumbing]:
        return Child.prepare(made, RankLog(Path(), print), joined=True)

    def _born(self, child: Child, pid: int) -> None:
        self.born.append((child.birth.rank, pid))
        self.children.append(child)

    def turn(self) -> None:
        """Serve all that is ready."""
        while ready := self.selector.select(0):  # what a peer does to a unix socket is there at once
            for key, events in ready:
                key.data(events)


class Process:
    """One that joins."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(meeting_path("job"))
        self.descriptors: list[int] = []

    def send(self, message: Message, *descriptors: int) -> None:
        socket.send_fds(self.sock, [control_frame(message)], descriptors)
        self._agent.turn()

    def answer(self) -> FromMeeting | None:
        """Return what the agent has answered; None: the connection has ended."""
        data, self.descriptors, _, _ = socket.recv_fds(self.sock, 1 << 16, 8, socket.MSG_DONTWAIT)
        return next((FROM_MEETING.decode(frame.payload) for frame in control_decoder().receive_data(data)), None)

    @property
    def is_closed(self) -> bool:
        """Whether the agent has hung up."""
        self.sock.setblocking(False)
        try:
            return not self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True  # with what it has not read

    def close(self) -> None:
        self.sock.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self._agent.turn()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    base = tmp_path / "r"
    base.mkdir(mode=0o700)
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(base))
    made = Agent(base)
    yield made
    made.meeting.close()
    for child in made.children:
        child.close()
    made.selector.close()
    assert not [*base.iterdir()]
    base.rmdir()


@pytest.fixture
def stacks() -> Iterator[int]:
    file = os.memfd_create("stacks")
    yield file
    os.close(file)


def test_a_process_becomes_a_rank(agent: Agent, stacks: int) -> None:
    process = Process(agent)
    process.send(AskToJoin(1), stacks)
    welcome = process.answer()
    assert isinstance(welcome, Welcome)
    assert (welcome.mesh, welcome.name, welcome.secret, len(process.descriptors)) == ("m", "run", b"secret", 3)
    assert agent.born == []
    process.send(Ready())
    assert agent.born == [(1, os.getpid())] and process.answer() is None
    os.write(stacks, b"Fatal Python error: x")
    assert agent.children[0].crash_text() == "Fatal Python error: x"
    process.close()


def test_its_parent_is_told_when_its_end_was_noticed(agent: Agent, stacks: int) -> None:
    ours, theirs = socket.socketpair()
    process = Process(agent)
    process.send(AskToJoin(0), stacks, theirs.fileno())
    theirs.close()
    process.answer()
    process.send(Ready())
    ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        ours.recv(1)
    agent.children.pop().close()
    assert ours.recv(1) == b""
    process.close()
    ours.close()


def test_a_rank_is_given_once(agent: Agent, stacks: int) -> None:
    first, second = Process(agent), Process(agent)
    first.send(AskToJoin(0), stacks)
    second.send(AskToJoin(0), stacks)
    answer = second.answer()
    assert isinstance(answer, Refused) and "rank 0 already has a process" in answer.why
    first.close()
    second.close()


def test_a_watcher_that_is_no_socket_costs_its_sender_alone(agent: Agent, stacks: int) -> None:
    first = Process(agent)
    first.send(AskToJoin(0), stacks, stacks)
    first.answer()
    first.send(Ready())
    assert first.is_closed and agent.born == []
    first.close()
    second = Process(agent)
    second.send(AskToJoin(0), stacks)
    assert isinstance(second.answer(), Welcome)
    second.close()


def test_a_process_that_ends_before_it_is_ready_leaves_its_rank_to_others(agent: Agent, stacks: int) -> None:
    first = Process(agent)
    first.send(AskToJoin(0), stacks)
    first.answer()
    first.close()
    second = Process(agent)
    second.send(AskToJoin(0), stacks)
    assert isinstance(second.answer(), Welcome)
    second.close()


def test_who_asks_again_at_once_is_refused_once(agent: Agent, stacks: int) -> None:
    process = Process(agent)
    process.sock.sendall(control_frame(AskToJoin(7)) * 3)
    agent.turn()
    assert isinstance(process.answer(), Refused) and process.answer() is None
    process.close()
    other = Process(agent)
    other.send(AskToJoin(0), stacks)
    assert isinstance(other.answer(), Welcome)
    other.close()


def test_the_first_rank_that_is_free(agent: Agent, stacks: int) -> None:
    first, second, third = (Process(agent) for _ in range(3))
    given = []
    for process in (first, second, third):
        process.send(AskToJoin(-1), stacks)
        answer = process.answer()
        given.append(answer.rank if isinstance(answer, Welcome) else None)
    assert given == [0, 1, None]
    for process in (first, second, third):
        process.close()


def test_ranks_of_other_hosts_are_refused(agent: Agent, stacks: int) -> None:
    process = Process(agent)
    process.send(AskToJoin(7), stacks)
    assert isinstance(process.answer(), Refused)
    process.close()


@pytest.mark.parametrize("data", [b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, control_frame(Ready())])
def test_other_bytes_end_the_connection(agent: Agent, data: bytes) -> None:
    process = Process(agent)
    process.sock.sendall(data)
    process.sock.shutdown(socket.SHUT_WR)
    agent.turn()
    assert process.is_closed and agent.born == []
    process.close()


@pytest.mark.row("N10")
def test_little_is_taken_of_a_process_that_asks_for_no_rank(agent: Agent) -> None:
    process, before = Process(agent), open_descriptors()
    frame = pack_header(CONTROL, None, 512 << 10)
    for byte in frame[:8]:
        with contextlib.suppress(ConnectionError):
            socket.send_fds(process.sock, [bytes([byte])], [0] * 4)
        agent.turn()
        assert open_descriptors() <= before + 3
    assert process.is_closed
    process.close()
    talker = Process(agent)
    talker.sock.sendall(frame[:8] + b"x" * 2000)
    agent.turn()
    assert talker.is_closed
    talker.close()


@pytest.mark.row("N10")
def test_the_oldest_of_too_many_that_ask_for_none_is_closed(agent: Agent, stacks: int) -> None:
    member = Process(agent)
    member.send(AskToJoin(0), stacks)
    assert isinstance(member.answer(), Welcome)
    idle = []
    for _ in range(2 * UNPROVED_MAX):
        idle.append(Process(agent))
        agent.turn()
    assert [process.is_closed for process in idle] == [True] * UNPROVED_MAX + [False] * UNPROVED_MAX
    member.send(Ready())
    assert agent.born == [(0, os.getpid())], "one that has a rank stays"
    for process in (member, *idle):
        process.close()


@pytest.mark.row("N10")
def test_a_process_has_some_seconds_to_ask(agent: Agent, stacks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    member, idle = Process(agent), Process(agent)
    member.send(AskToJoin(0), stacks)
    late = time.monotonic() + HANDSHAKE_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: late)
    for look in agent.later:
        look()
    assert idle.is_closed and isinstance(member.answer(), Welcome)
    for process in (member, idle):
        process.close()


def test_a_socket_that_an_earlier_job_has_left_is_replaced(agent: Agent, tmp_path: Path) -> None:
    """And the end of the earlier one does not remove that of the later one."""
    base = Path(os.environ["MESHRT_RUNTIME_DIR"])
    later = Agent(base)
    agent.meeting.close()
    assert os.path.exists(meeting_path("job"))
    later.meeting.close()
    later.selector.close()
    assert not os.path.exists(meeting_path("job"))

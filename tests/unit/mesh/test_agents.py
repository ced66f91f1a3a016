"""Which host agents are said not to answer, with a clock that the test moves; and what they say before they end."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from meshrt.mesh.agent_output import AgentOutput
from meshrt.mesh.agents import AgentLink, AgentPulse
from meshrt.wire.addresses import HostAddress
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.tree import FROM_ROOT, Joined, Ping, Pong
from tests.support.agents import an_agent
from tests.support.control import raw_frame
from tests.support.loops import ManualLoop

SILENT = AgentPulse.SILENT_SECONDS


class Loop:
    """Calls what is due when the test says that time has gone by: once, however much it was, as a loop does."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: tuple[float, Callable[[], None]] = (0.0, lambda: None)

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.due = self.now + seconds, function

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        when, function = self.due
        if when <= self.now:
            function()


class Agent:
    def __init__(self, host: str, pulse: AgentPulse) -> None:
        self.host = host
        self.gone = False
        self.pid = 4711
        self.asked = 0
        self.pulse = pulse
        self.answers = True

    def look(self) -> None:
        """It is there."""

    def is_heard(self) -> bool:
        return True

    def send(self, message: Message) -> None:
        assert isinstance(message, Ping)
        self.asked += 1
        if self.answers:
            self.pulse.answered(self)  # type: ignore[arg-type]


def agents(count: int) -> tuple[Loop, list[Agent], list[str]]:
    told: list[str] = []
    found: list[Any] = []
    pulse = AgentPulse(lambda: found, lambda: None, told.append)
    found += [Agent(f"host{index}", pulse) for index in range(count)]
    loop = Loop()
    running: Any = loop
    pulse.start(running)
    return loop, found, told


def pass_by(loop: Loop, seconds: float) -> None:
    for _ in range(int(seconds / AgentPulse.INTERVAL)):
        loop.pass_by(AgentPulse.INTERVAL)


def test_one_that_is_silent_is_told_once_and_so_is_its_return() -> None:
    loop, (first, second), told = agents(2)
    second.answers = False
    pass_by(loop, 1 + SILENT + 10)
    assert told == ["the agent of host host1 (pid 4711) does not answer; its ranks continue to run"]
    assert first.asked > 10 and second.asked == 1
    second.pulse.answered(second)  # type: ignore[arg-type]
    assert told[1:] == ["the agent of host host1 answers again"]


def test_who_was_away_itself_asks_anew() -> None:
    """The script was stopped, or the whole machine: that an answer is late says nothing of who was to give it."""
    loop, (agent,), told = agents(1)
    agent.answers = False
    pass_by(loop, 2)
    assert agent.asked == 1
    loop.pass_by(3600.0)
    assert told == [] and agent.asked == 2
    pass_by(loop, SILENT - 1)
    assert told == []
    pass_by(loop, 1)
    assert len(told) == 1


def test_one_that_has_ended_is_not_asked() -> None:
    loop, (agent,), told = agents(1)
    agent.answers = False
    pass_by(loop, 1)
    agent.gone = True
    pass_by(loop, SILENT + 5)
    assert told == [] and agent.asked == 1


def test_what_an_agent_wrote_last_is_known_when_its_end_is_told() -> None:
    """Whichever of the two the loop looks at first."""
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    readers: dict[int, Callable[[], None]] = {}
    loop: Any = SimpleNamespace(
        add_reader=readers.__setitem__, remove_reader=readers.pop, remove_writer=lambda fd: None
    )
    placed = an_agent(ours, stderr=os.fdopen(read_end, "rb"))
    told: list[tuple[str, ...]] = []
    printed: list[str] = []
    link = AgentLink(
        placed, lambda *_: None, lambda *_: None, lambda agent: told.append(agent.output.tail), printed.append
    )
    link.attach(loop)
    number = ours.fileno()
    os.write(write_end, b"a warning\nand why it")
    theirs.close()
    readers[number]()
    assert told == [("a warning", "and why it")] and "".join(printed) == "a warning\nand why it\n"
    assert not readers
    link.output.close()  # somebody else still holds the other end
    os.close(write_end)


def test_the_end_of_an_agent_is_seen_though_it_had_not_read_all_and_had_sent_something() -> None:
    """As of one that is killed right behind the failure of a rank."""
    uvloop.run(_ends_behind_a_message())


async def _ends_behind_a_message() -> None:
    ours, theirs = socket.socketpair()
    placed = an_agent(ours)
    heard: list[Message] = []
    gone = asyncio.Event()
    link = AgentLink(placed, lambda _, message: heard.append(message), lambda *_: None, lambda _: gone.set(), print)
    theirs.sendall(control_frame(Pong()))
    link.send(Ping())
    theirs.close()
    link.attach(asyncio.get_running_loop())
    await asyncio.wait_for(gone.wait(), 20)
    assert heard == [Pong()]


def test_the_last_lines_of_an_agent_are_kept_and_no_line_takes_all_memory() -> None:
    read_end, write_end = os.pipe()
    size = 0

    def write(text: str) -> None:
        nonlocal size
        size += len(text)

    output = AgentOutput(os.fdopen(read_end, "rb"), write)
    for _ in range(10):
        os.write(write_end, b"x" * 50_000)
        output.read()
    os.write(write_end, b"\n" + b"".join(b"line %d\n" % index for index in range(100)))
    os.close(write_end)
    output.read()
    assert output.tail == tuple(f"line {index}" for index in range(80, 100))
    assert size > 500_000 + 690
    output.read()
    output.close()


BAD: list[tuple[dict[str, Any], Any, str]] = [
    ({"t": "no such"}, None, "dropped, gathered, gone, joined"),
    ({"t": "gone", "mesh": "m", "rank": 1}, None, "missing required field `fate`"),
    ({"t": "started", "mesh": "m", "rank": 0, "pid": "1"}, None, "Expected `int`, got `str` - at `$.pid`"),
    ({"t": "pong"}, 5, "an invalid address"),
    ({"t": "pong"}, ["m"], "an invalid address"),
    ({"t": "pong"}, ["m", False], "an invalid address"),
    ({"t": "gone"}, ["m", 1], "expected one of dropped, ev, hint"),
]


@pytest.mark.parametrize(("message", "address", "expected"), BAD)
def test_an_agent_that_says_what_none_may_say_is_ended(
    message: dict[str, Any], address: Any, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    killed: list[bool] = []
    placed = an_agent(ours, kill=lambda: killed.append(True))
    heard: list[Message] = []
    gone: list[AgentLink] = []
    link = AgentLink(
        placed, lambda _, message: heard.append(message), lambda _, message: heard.append(message), gone.append, print
    )
    loop: Any = ManualLoop()
    link.attach(loop)
    with theirs:
        theirs.sendall(control_frame(Pong()) + control_frame(Pong(), ("m", 1)))
        loop.readable()
        assert heard == [Pong(), Pong()] and not gone
        theirs.sendall(raw_frame(message, address))
        loop.readable()
    assert (killed, gone, len(heard)) == ([True], [link], 2)
    assert expected in caplog.text


def test_the_clock_of_another_machine_is_known_when_its_agent_has_joined_and_it_lived_when_it_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    link = AgentLink(an_agent(ours, machine=7), lambda *_: None, lambda *_: None, lambda _: None, print)
    apart = 86_400 * 10**9
    begun = time.monotonic_ns()
    address = HostAddress(7, 3, b"/d", ())
    link.has_joined(Joined(address, time.monotonic_ns() + apart, time.time() + 5))
    asked = [FROM_ROOT.decode(frame.payload) for frame in control_decoder().receive_data(theirs.recv(1 << 16))]
    assert isinstance(asked[0], Ping) and asked[0].at >= begun
    link.answered(Pong(asked[0].number, asked[0].at, time.monotonic_ns() + apart, time.time() + 5))
    clock = link.clock
    assert clock is not None and clock.host == "7" and link.address == address and link.joined.is_set()
    assert abs(clock.offset + apart) <= clock.error < 10**9 and abs(clock.wall + 5) < 1
    assert link.alive_at == asked[0].at
    link.look()
    assert link.alive_at == asked[0].at, "only an answer tells that it lives"
    monkeypatch.setattr("meshrt.mesh.agents._APART", -1)
    link.look()
    assert theirs.recv(1 << 16)
    monkeypatch.setattr(AgentLink, "full", True)
    link.look()
    with pytest.raises(BlockingIOError):  # of an agent that reads nothing, no questions wait in a row
        theirs.recv(1, socket.MSG_DONTWAIT)
    link.close()
    theirs.close()


def test_the_clock_of_this_machine_needs_no_conversion() -> None:
    ours, theirs = socket.socketpair()
    link = AgentLink(an_agent(ours), lambda *_: None, lambda *_: None, lambda _: None, print)
    link.answered(Pong(0, time.monotonic_ns(), time.monotonic_ns() + 5, 0.0))
    assert link.clock is None
    link.close()
    theirs.close()

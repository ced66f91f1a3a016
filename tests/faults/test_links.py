"""Links that are slow, silent, cut or reset, while the processes at both ends live."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np
import pytest

import meshrt
from meshrt import Actor, ActorMesh, CallTimeout, LinkLost, LocalEngine, endpoint, proc_mesh
from meshrt.engine.local import LocalAgent
from meshrt.mesh.agents import AgentPulse
from meshrt.mesh.engine import Placed, Program, Request
from meshrt.transport.link import Link
from meshrt.transport.process import current_runtime
from meshrt.wire.addresses import socket_path
from meshrt.wire.frames import control_decoder
from tests.faults.watch import LONG
from tests.support.linkfaults import FaultyRelay, Way
from tests.support.screen import Screen
from tests.support.waiting import wait_until

#: Seconds after which a call that is not answered is given up.
GIVEN_UP = 0.3
WAYS: tuple[Way, ...] = get_args(Way)
#: What has run in this process, whichever actor ran it.
RUN: list[Any] = []


class Noting(Actor):
    """Notes what it runs."""

    @endpoint
    def note(self, value: Any) -> Any:
        RUN.append(value if isinstance(value, str | int) else len(value))
        return value

    @endpoint
    def has_run(self) -> list[Any]:
        return RUN

    @endpoint
    def here(self) -> str:
        return "here"


class Site:
    """Two ranks. The links to some actors on rank 0 go through a relay, those to others do not."""

    def __init__(self) -> None:
        self.procs = proc_mesh(n=2)
        self.sound = self.procs.spawn("sound", Noting).get(LONG)
        self._path = socket_path(current_runtime().directory, self.procs.mesh_id, 0)
        self._names = (f"faulty{number}" for number in itertools.count())

    @contextlib.contextmanager
    def faulty(self) -> Iterator[tuple[FaultyRelay, ActorMesh[Noting], ActorMesh[Noting]]]:
        """Yield the relay, an actor on rank 0 behind it, and the same actor on rank 1, which is not behind it."""
        with FaultyRelay.in_front_of(self._path) as relay:
            actors = self.procs.spawn(next(self._names), Noting).get(LONG)
            assert relay.connections() == 1
            yield relay, actors.slice(n=0), actors.slice(n=1)

    def has_run(self) -> list[Any]:
        """Return what has run on rank 0."""
        found: list[Any] = self.sound.slice(n=0).has_run.call_one().get(LONG)
        return found

    def others_answer(self, beside: ActorMesh[Noting]) -> None:
        """Another rank of the same actor, other actors of the same rank, and one that is new."""
        assert beside.here.call_one().get(LONG) == "here"
        assert self.sound.here.call().get(LONG).values() == ["here"] * 2
        assert self.procs.spawn(next(self._names), Noting).here.call().get(LONG).values() == ["here"] * 2


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr("meshrt.transport.disconnects.DISCONNECTED_SECONDS", 0.2)
    return Site()


def is_lost(call: Any, *, may_have_run: bool) -> None:
    error = call.exception(LONG)
    assert isinstance(error, LinkLost) and (error.rank, error.may_have_run) == (0, may_have_run), error


@pytest.mark.row("N1")
def test_one_direction_of_a_connection_ends(site: Site) -> None:
    """What was sent runs once. The caller gets the answer, or is told that it may have run; a later call does not."""
    for way in WAYS:
        with site.faulty() as (relay, one, beside):
            with relay.silent("back"):
                pending = one.note.call_one(way)
                wait_until(lambda: site.has_run()[-1:] == [way], LONG)  # noqa: B023 - used at once
                relay.shut_down(way)
            if way == "there":  # the answer was written before the rank has seen the end
                assert pending.get(LONG) == way
                wait_until(lambda: isinstance(one.here.call_one().exception(LONG), LinkLost), LONG)
            else:
                is_lost(pending, may_have_run=True)
            is_lost(one.note.call_one("later"), may_have_run=False)
        site.others_answer(beside)
    assert site.has_run() == list(WAYS)


@pytest.mark.row("N2")
def test_a_part_of_a_message_and_the_end(site: Site) -> None:
    """Half a call does not run; half an answer is none. In the header, and in the payload."""
    expected: list[Any] = []
    for way, size in itertools.product(WAYS, (10, 300_000)):
        expected += [size] if way == "back" else []
        with site.faulty() as (relay, one, beside), relay.cut_after(size // 2, way):
            pending = one.note.call_one(bytes(size))
            wait_until(lambda: relay.stuck(way) and site.has_run() == expected, LONG)  # noqa: B023 - used at once
            for each in WAYS:
                relay.shut_down(each)
            is_lost(pending, may_have_run=True)
    site.others_answer(beside)
    assert site.has_run() == expected


@pytest.mark.row("N2", "N7")
def test_a_part_of_a_message_and_silence(site: Site) -> None:
    """The call ends at its time-out; the rest of the message may come later."""
    for way in WAYS:
        with site.faulty() as (relay, one, beside):
            with relay.cut_after(5, way):
                pending = one.note.call_one(way)
                with pytest.raises(CallTimeout) as caught:
                    pending.get(GIVEN_UP)
                assert [place.rank for place in caught.value.missing] == [0]
                assert beside.here.call_one().get(LONG) == "here"
                site.has_run()
            assert pending.get(LONG) == way
    assert site.has_run() == list(WAYS)


@pytest.mark.row("N3", "N7", "N8")
def test_slow_links_and_silent_ones(site: Site) -> None:
    """Bytes come one by one, not at all, or late and reordered: each call runs once, those to one actor in order."""
    with site.faulty() as (relay, one, beside):
        with relay.dribbling():
            late = site.procs.slice(n=0).spawn("late", Noting)  # a handshake, too
            calls = [one.note.call_one(index) for index in range(3)]
            assert beside.here.call_one().get(LONG) == "here"
            assert [call.get(LONG) for call in calls] == site.has_run() == [0, 1, 2]
            assert late.here.call_one().get(LONG) == "here"
        with relay.silent():
            held = one.note.call_one("held")
            with pytest.raises(CallTimeout):
                held.get(5 * GIVEN_UP)  # longer than it takes a closed connection to count as lost
            assert beside.here.call_one().get(LONG) == "here"
            assert site.has_run() == [0, 1, 2]
        assert held.get(LONG) == "held"
        with relay.delayed(10 * LONG, 0.0):  # until the block ends
            slow = [one.note.call_one(index) for index in range(3, 23)]
            array = one.note.call_one(np.arange(1 << 16))  # in shared memory
            quick = [late.note.call_one(100 + index) for index in range(20)]
            assert [call.get(LONG) for call in quick] == list(range(100, 120))
            assert not slow[0].done()
        assert [call.get(LONG) for call in slow] == list(range(3, 23))
        assert array.get(LONG).sum() == sum(range(1 << 16))
    assert site.has_run() == [0, 1, 2, "held", *range(100, 120), *range(3, 23), 1 << 16]


@pytest.mark.row("N7")
def test_stop_does_not_need_a_link_that_is_silent(site: Site) -> None:
    with site.faulty() as (relay, one, _), relay.silent():
        pending = one.note.call_one("held")
        site.procs.stop(0.2).get(LONG)
        assert isinstance(pending.exception(LONG), meshrt.MeshStopped)


@pytest.mark.row("N9")
def test_a_connection_is_reset_during_calls(site: Site) -> None:
    """Both ends get ECONNRESET. One call has run, the other one has not come; neither is sent again."""
    with site.faulty() as (relay, one, beside):
        with relay.silent("back"):
            ran = one.note.call_one("ran")
            wait_until(lambda: site.has_run() == ["ran"], LONG)
            relay.wait_for_bytes("back")
            with relay.silent():
                lost = one.note.call_one("lost")
                relay.wait_for_bytes("there")
                relay.reset()
                is_lost(ran, may_have_run=True)
                is_lost(lost, may_have_run=True)
        is_lost(one.note.call_one("later"), may_have_run=False)
    site.others_answer(beside)
    assert site.has_run() == ["ran"]


class RelayedEngine:
    """One agent, whose link to the root goes through ``relay``."""

    relay: FaultyRelay

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        if living:
            return living
        placed = LocalEngine().place(program, request, living)
        assert isinstance(placed[0], LocalAgent)
        own = socket.socket(fileno=placed[0].link.sock.detach())
        self.relay, link = FaultyRelay.between(own)
        placed[0].link = Link(link, control_decoder())
        return placed


@pytest.mark.row("N7", "N8")
def test_the_link_to_an_agent_is_late_and_then_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal says that the agent does not answer. Its ranks go on, and so does the agent afterwards."""
    monkeypatch.setattr(AgentPulse, "INTERVAL", 0.05)
    monkeypatch.setattr(AgentPulse, "SILENT_SECONDS", 1.0)
    screen = Screen.instead_of("stderr", monkeypatch)
    engine = RelayedEngine()
    actors = proc_mesh(n=2, engine=engine).spawn("actor", Noting).get(LONG)
    with engine.relay as relay:
        with relay.delayed(0.2):
            assert proc_mesh(n=1, engine=engine).spawn("late", Noting).here.call_one().get(LONG) == "here"
        with relay.silent():
            screen.wait_for("does not answer; its ranks continue to run\n")
            assert actors.here.call().get(LONG).values() == ["here"] * 2
        screen.wait_for("answers again\n")
        assert proc_mesh(n=1, engine=engine).spawn("more", Noting).here.call_one().get(LONG) == "here"
        assert " was lost" not in screen.text
        meshrt.shutdown_context(0.5)

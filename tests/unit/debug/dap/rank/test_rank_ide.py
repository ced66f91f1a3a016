"""IDEs that come and go at one rank, one behind the other and two at once. The engine is a fake, the pump is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.debug.dap.operations import Attach, Close, ToEngine
from meshrt.debug.dap.rank.ide import RankIde
from meshrt.debug.dap.wire import encode
from meshrt.debug.rank.debugger import RankDebugger
from meshrt.errors import MeshError
from meshrt.hooks.facts import EndpointCall
from tests.unit.debug.dap.rank.pump_fakes import FakeEngine, Watched


class Desk(Watched):
    """A rank with IDEs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.debugger = RankDebugger(self.services)
        self.ide = RankIde(self.services, self.debugger)

    def opens(self, channel: int) -> FakeEngine:
        """Attach an IDE; returns its engine."""
        self.ide.open(Attach(channel, f"the IDE of process {channel}", ""))
        return self.opened(channel)

    def leaves(self, channel: int, engine: FakeEngine) -> None:
        """The IDE says goodbye, and the engine answers."""
        self.says(channel, "disconnect")
        engine.answers(engine.hears())
        assert self.event("dap.leaving")["channel"] == channel
        assert self.event("dap.data")["channel"] == channel

    def says(self, channel: int, command: str) -> None:
        message = {"seq": 1, "type": "request", "command": command, "arguments": {}}
        self.ide.data(ToEngine(channel, encode(message)))

    def ended(self, channel: int) -> str:
        """Wait until an IDE's engine has ended, and let the control thread take note of it; returns why."""
        body = self.event("dap.closed")
        assert body["channel"] == channel
        # What the debugger does with its breakpoints, and that this IDE has gone.
        while self.ide._pump is not None and self.ide._pump.leaving:
            self.services.run_next()
        return str(body["why"])

    def close(self) -> None:
        pump = self.ide._pump
        self.ide.proc_closing()
        self.end(pump, "the mesh is being stopped")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with closing(Desk(monkeypatch)) as found:
        yield found


def test_one_at_a_time_and_the_next_when_it_has_left(desk: Desk) -> None:
    engine = desk.opens(1)
    assert desk.debugger.handover.holder == "the IDE of process 1"
    with pytest.raises(MeshError, match="an IDE is already attached to this rank"):
        desk.ide.open(Attach(2, "another", ""))
    desk.says(2, "threads")  # it is nobody's
    # While it leaves, the next one waits, and one more is refused.
    desk.leaves(1, engine)
    desk.ide.open(Attach(3, "the IDE of process 3", ""))
    with pytest.raises(MeshError, match="an IDE is already attached to this rank"):
        desk.ide.open(Attach(4, "the IDE of process 4", ""))
    assert desk.ended(1) == "" and engine.done == ["stop"]
    second = desk.opened(3)
    assert desk.debugger.handover.holder == "the IDE of process 3"
    desk.leaves(3, second)
    assert desk.ended(3) == "" and desk.debugger.handover.holder == ""


def test_the_next_one_has_lost_patience(desk: Desk) -> None:
    engine = desk.opens(1)
    desk.leaves(1, engine)
    desk.ide.open(Attach(2, "the IDE of process 2", ""))
    desk.ide.close(Close(2))
    desk.ended(1)
    assert desk.ide._pump is None and desk.debugger.handover.holder == ""


def test_what_stands_stays_for_another_one(desk: Desk) -> None:
    engine = desk.opens(1)
    engine.stops(5)
    desk.event("dap.holds")
    desk.event("dap.data")
    desk.ide.close(Close(1, stay=True))
    assert desk.debugger.handover.holder == "an IDE that has disconnected" and desk.services.holds == 1
    desk.ide.open(Attach(2, "the IDE of process 2", ""))
    assert desk.event("dap.opened")["channel"] == 2
    assert desk.event("dap.holds")["held"]
    assert desk.debugger.handover.holder == "the IDE of process 2"
    # The mesh is stopped: nobody waits for a person.
    desk.ide.proc_closing()
    engine.answers(engine.hears())
    assert not desk.event("dap.holds")["held"]
    assert desk.ended(2) == "the mesh is being stopped" and desk.services.holds == 0


def test_an_ide_that_waits_for_a_prompt_has_nothing_to_stay_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    standing = SimpleNamespace(place=lambda: "train.py:7")
    sessions: Any = desk.debugger._sessions
    monkeypatch.setattr(sessions, "busy", lambda: standing)
    desk.ide.open(Attach(1, "the IDE of process 1", ""))
    assert "is stopped at a prompt of the debugger, train.py:7" in desk.event("dap.waiting")["text"]
    desk.ide.close(Close(1, stay=True))
    assert desk.ended(1) == "the IDE has disconnected"

    # ... or has the rank, once it goes on from there.
    desk.ide.open(Attach(2, "the IDE of process 2", ""))
    desk.event("dap.waiting")
    monkeypatch.setattr(sessions, "busy", lambda: None)
    sessions.left()
    engine = desk.opened(2)
    desk.leaves(2, engine)
    desk.ended(2)


def test_an_exception_that_leaves_an_endpoint_is_the_ides(desk: Desk) -> None:
    call = cast(EndpointCall, None)
    desk.ide.endpoint_error(call, ValueError("nobody is here"))
    engine = desk.opens(1)
    desk.ide.endpoint_error(call, ValueError("wrong value"))
    assert engine.done == ["failed: wrong value"]
    desk.leaves(1, engine)
    desk.ended(1)

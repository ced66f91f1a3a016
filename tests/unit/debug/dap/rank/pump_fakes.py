"""An engine on a socket pair, and an IDE on a pump, for tests of the rank's side."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from meshrt.debug.dap.rank import pump as pumps
from meshrt.debug.dap.rank.pump import Pump
from meshrt.debug.dap.wire import Message, MessageDecoder, encode, response
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Report
from tests.unit.debug.fakes import WAIT, FakeRankServices

__all__ = ["FakeEngine", "Rank", "Services", "Watched"]


class Services(FakeRankServices):
    """What is to be done later is done when the test says so: it is the control thread."""

    def __init__(self) -> None:
        super().__init__()
        self.later: queue.Queue[Callable[[], None]] = queue.Queue()
        #: Whoever tells something waits for it, once it has been told.
        self.goes_on = threading.Event()
        self.goes_on.set()

    def report(self, report: Report) -> None:
        super().report(report)
        assert self.goes_on.wait(WAIT)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.put(function)

    def run_next(self) -> None:
        """Do the next thing."""
        self.later.get(timeout=WAIT)()


class FakeEngine:
    """Serves nothing by itself: the test hears what it is told, and says what it says."""

    price = ""

    def __init__(self) -> None:
        self._ours, self._its = socket.socketpair()
        self._its.settimeout(WAIT)
        self._decoder = MessageDecoder()
        self._heard: list[Message] = []
        #: What was done to it, in order.
        self.done: list[str] = []

    def start(self) -> socket.socket:
        return self._ours

    def stop(self) -> None:
        self.done.append("stop")
        self._ours.close()
        self._its.close()

    def forget_breakpoints(self) -> None:
        self.done.append("forget_breakpoints")

    def breakpoint(self, frame: FrameType) -> None:
        self.done.append("breakpoint")

    def suspend(self, frame: FrameType) -> None:
        self.done.append("suspend")

    def failed(self, error: BaseException) -> None:
        self.done.append(f"failed: {error}")

    def hears(self) -> Message:
        """Return the next message for it."""
        while not self._heard:
            data = self._its.recv(1 << 16)
            assert data, "the pump has hung up"
            self._heard += self._decoder.receive_data(data)
        return self._heard.pop(0)

    def says(self, *messages: Message, **message: Any) -> None:
        """Say all at once; one may be given by its fields."""
        said = [*messages, message] if message else messages
        self._its.sendall(b"".join(encode(each) for each in said))

    def answers(self, request: Message, **more: Any) -> None:
        """Answer a request: it was obeyed."""
        self.says({**response(request), **more})

    def stops(self, thread: int = 1) -> None:
        """Say that a thread stands."""
        self.says(seq=0, type="event", event="stopped", body={"threadId": thread})

    def dies(self) -> None:
        self._its.close()


def _engines_of(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[FakeEngine]:
    """Let pumps load such engines; returns where each is found as it is made."""
    made: queue.Queue[FakeEngine] = queue.Queue()

    def make() -> FakeEngine:
        engine = FakeEngine()
        made.put(engine)
        return engine

    monkeypatch.setattr(pumps, "Engine", make)
    return made


class Watched:
    """What becomes of a rank, seen by the root."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.services = Services()
        self._engines = _engines_of(monkeypatch)

    def event(self, name: str) -> Body:
        """Return the next event of the rank, which must be that."""
        event, body = self.services.events.get(timeout=WAIT)
        assert event == name, (event, body)
        return body

    def opened(self, channel: int = 1) -> FakeEngine:
        """Wait until an IDE is attached; returns its engine."""
        body = self.event("dap.opened")
        assert body["channel"] == channel
        return self._engines.get(timeout=WAIT)

    def end(self, pump: Pump | None, why: str = "the test is over") -> None:
        """At the end of a test, however it ends."""
        if pump is not None:
            pump.close(why)
            if pump._thread.ident is not None:
                pump._thread.join(WAIT)


class Rank(Watched):
    """A rank with a pump, and the IDE at its other end, on channel 1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.ended: queue.Queue[Pump] = queue.Queue()
        self.pump = Pump(self.services, 1, self.ended.put)
        self._decoder = MessageDecoder()
        self._said: list[Message] = []
        self._seq = 0

    def attached(self) -> FakeEngine:
        """Begin, as one that may start at once; returns the engine."""
        self.pump.begin()
        self.pump.take()
        return self.opened()

    def asks(self, command: str, **arguments: Any) -> None:
        """Put a request of the IDE."""
        self._seq += 1
        self.pump.feed(encode({"seq": self._seq, "type": "request", "command": command, "arguments": arguments}))

    def hears(self) -> Message:
        """Return the next message for the IDE; it takes what it is sent."""
        while not self._said:
            self._said += self._decoder.receive_data(self.event("dap.data")["data"])
        return self._said.pop(0)

    def over(self) -> Body:
        """Wait until the pump has ended; returns what is said of that."""
        assert self.ended.get(timeout=WAIT) is self.pump
        body = self.event("dap.closed")
        self.pump._thread.join(WAIT)
        assert not self.pump._thread.is_alive() and self.services.holds == 0
        return body

    def close(self) -> None:
        self.end(self.pump)

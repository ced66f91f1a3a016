"""Stand-ins for parts of the root: a loop that runs what the test lets it run, host agents that keep what they get."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.spec import MeshSpec
from meshrt.transport.driver import Driver
from meshrt.wire.addresses import HostAddress
from meshrt.wire.control import Message

__all__ = ["FakeAgent", "FakeLoop", "record"]


class FakeLoop:
    """As much of a `RootLoop` as its parts need. Everything is posted until the test runs it."""

    def __init__(self) -> None:
        self.on_start: list[Callable[[], None]] = []
        self.on_end: list[Callable[[], None]] = []
        self.on_failure: list[Callable[[], None]] = []
        self.failure = ""
        self.posted: list[Callable[[], None]] = []
        #: What is to run later, with its seconds.
        self.later: list[tuple[float, Callable[[], None]]] = []

    def post(self, function: Callable[[], None]) -> None:
        self.posted.append(function)

    def post_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.append((seconds, function))

    call_later = post_later

    def run(self) -> None:
        """Run what was posted, and what that posts."""
        while self.posted:
            self.posted.pop(0)()

    def pass_time(self) -> None:
        """Run what is due later."""
        later, self.later = self.later, []
        for _, function in later:
            function()
        self.run()

    def fail(self, why: str) -> None:
        """It has failed."""
        self.failure = why
        for function in self.on_failure:
            function()


class FakeAgent:
    """A host agent that answers nothing by itself."""

    def __init__(self, host: str = "h") -> None:
        self.host = host
        self.gone = self.full = False
        self.alive_at = self.gone_at = 0
        self.pid = 4711
        self.machine = 0
        self.clock = None
        self.said = ""
        self.where = self.address = HostAddress(1, 4711, b"/d")
        self.output = SimpleNamespace(tail=())
        self.sent: list[Message] = []
        self.frames: list[bytes] = []
        self.killed = False
        self.killed_ranks: list[int] = []
        #: Whether a signal has stopped it, and whether it answers questions.
        self.is_stopped = False
        self.answers = True

    def why(self) -> str:
        return self.said

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def send_frames(self, frames: list[bytes]) -> None:
        self.frames += frames

    def kill(self) -> None:
        self.killed = True

    def kill_ranks(self, pids: list[int]) -> None:
        self.killed_ranks += pids

    def resume(self) -> bool:
        return self.is_stopped

    def hear(self, _seconds: float) -> bool:
        return self.answers


def record(
    driver: Driver,
    *agents: FakeAgent,
    name: str = "m",
    count: int = 2,
    owner: Owner | None = None,
    births: Callable[[MeshRecord, list[int]], list[bytes]] = lambda _record, _ranks: [],
    progress: Any = None,
) -> MeshRecord:
    """Return a mesh on these agents, of which no rank has been started."""
    links: list[Any] = list(agents)
    spec = MeshSpec.make("", {"n": count}, None, None, ())
    shows: Any = progress or SimpleNamespace(update=lambda _done: None)
    return MeshRecord(name, name, spec, links, driver, owner, births, shows)

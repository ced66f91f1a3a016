"""Stores that only remember what they were told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from meshrt.errors import ReferenceLost
from meshrt.wire.handshake import NOBODY, Identity

__all__ = ["FakeRegistrar", "FakeRegistrars"]


class FakeRegistrar:
    """What `meshrt.store.registrar.Registrar` is to those above it."""

    def __init__(self, agent_pid: int) -> None:
        self.agent_pid = agent_pid
        self.machine = 0
        self.lost = False
        self.freed: deque[int] = deque()
        self.told: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.withdrawn: list[int] = []
        self.given_back: list[int] = []
        self.recalled: list[tuple[list[int], Any]] = []
        self.taken_back: list[tuple[list[int], list[int]]] = []
        #: Raised by the next thing that is told.
        self.refuses: Exception | None = None
        #: ``answers(operation, body)`` returns what it answers.
        self.answers: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda _operation, _body: {}

    def connect(self) -> None:
        """It always is."""

    def settle(self) -> None:
        """Everything was said."""

    def tell(self, message: dict[str, Any]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.told.append(message)

    def ask(self, operation: str, _send: object = (), **body: Any) -> tuple[dict[str, Any], list[int]]:
        self.asked.append(operation)
        return self.answers(operation, body), []

    def give(self, segments: list[int], pids: list[int]) -> None:
        self.tell({"t": "give", "segments": segments, "to": pids})

    def take_back(self, segments: list[int], pids: list[int]) -> None:
        self.taken_back.append((segments, pids))

    def recall(self, segments: list[int], to: Any) -> None:
        self.recalled.append((segments, to))

    def withdraw(self, segment: int) -> None:
        self.withdrawn.append(segment)

    def give_back(self, size: int) -> None:
        self.given_back.append(size)


class FakeRegistrars:
    """What `meshrt.store.registrars.Registrars` is to those above it."""

    def __init__(self, *agents: int) -> None:
        self.first = agents[0]
        self.own = NOBODY
        self.by_agent = {agent: FakeRegistrar(agent) for agent in agents}

    def __iter__(self) -> Iterator[FakeRegistrar]:
        return iter(tuple(self.by_agent.values()))

    def identity(self) -> Identity:
        return self.own

    def home(self, _seconds: float) -> int:
        return self.first

    def of(self, agent_pid: int) -> FakeRegistrar:
        if agent_pid not in self.by_agent:
            raise ReferenceLost("there is none")
        return self.by_agent[agent_pid]

    def forget(self, registrar: FakeRegistrar) -> None:
        del self.by_agent[registrar.agent_pid]

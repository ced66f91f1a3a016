"""Stores that only remember what they were told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from meshrt.errors import ReferenceLost
from meshrt.store.messages import (
    FromProcess,
    Give,
    Grant,
    Granted,
    Publish,
    Published,
    ToProcess,
)
from meshrt.store.outbox import Unanswered
from meshrt.wire.handshake import UNKNOWN_PEER, Identity

__all__ = ["FakeRegistrar", "FakeRegistrars", "granted"]

A = TypeVar("A", bound=ToProcess)


def granted(question: FromProcess) -> ToProcess:
    """Answer as a store does that has room for everything."""
    if isinstance(question, Grant):
        return Granted(question.id, question.size)
    assert isinstance(question, Publish)
    return Published(question.id)


class FakeRegistrar:
    """What `meshrt.store.registrar.Registrar` is to those above it."""

    def __init__(self, agent_pid: int) -> None:
        self.agent_pid = agent_pid
        self.machine = 0
        self.lost = False
        self.freed: deque[int] = deque()
        self.told: list[FromProcess] = []
        self.asked: list[FromProcess] = []
        self.told_later: list[Unanswered] = []
        #: Raised by the next thing that is told.
        self.refuses: Exception | None = None
        #: Returns what it answers to a question.
        self.answers: Callable[[FromProcess], ToProcess] = granted

    def connect(self) -> None:
        """It always is."""

    def settle(self) -> None:
        """Everything was said."""

    def tell(self, message: FromProcess) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.told.append(message)

    def ask(self, question: Callable[[int], FromProcess], expected: type[A], send: object = ()) -> A:
        asked = question(1)
        self.asked.append(asked)
        answer = self.answers(asked)
        assert isinstance(answer, expected)
        return answer

    def give(self, segments: list[int], pids: list[int]) -> None:
        self.tell(Give(segments, pids))

    def tell_later(self, message: Unanswered) -> None:
        self.told_later.append(message)


class FakeRegistrars:
    """What `meshrt.store.registrars.Registrars` is to those above it."""

    def __init__(self, *agents: int) -> None:
        self.first = agents[0]
        self.own = UNKNOWN_PEER
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

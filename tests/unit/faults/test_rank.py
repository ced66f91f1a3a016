"""The rank's side of a plan: which calls count, and when a fault happens."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.actor.context import CallContext, enter, leave
from meshrt.errors import MeshError
from meshrt.faults import rank as rank_side
from meshrt.faults.operations import BeginOnRank, EndOnRank, Happens, LookOnRank, Planned
from meshrt.faults.rank import RankFaults
from meshrt.hooks.facts import ActorState, EndpointCall, Workload
from meshrt.hooks.table import hooks
from meshrt.selection import Shape


class Services:
    rank = 1
    elsewhere = False

    def __init__(self) -> None:
        self.told: list[object] = []
        self.refuses = False
        self.now: tuple[list[ActorState], list[Workload]] = [], []

    def ask(self, operation: Happens, timeout: float) -> None:
        if self.refuses:
            raise MeshError("this plan has ended")
        self.told.append(operation.number)

    def actors(self) -> list[ActorState]:
        return self.now[0]

    def workload(self) -> list[Workload]:
        return self.now[1]


class Rank:
    """A rank that notes its faults."""

    def __init__(self) -> None:
        self.services = Services()
        have = {kind: functools.partial(self.services.told.append, kind) for kind in ("kill", "stop", "cut")}
        self.faults = RankFaults(cast(Any, self.services), have)

    def plan(self, *faults: Planned) -> None:
        self.faults.begin(BeginOnRank("p", faults))

    def run(self, endpoint: str, actor: str = "a") -> list[object]:
        """A call runs; returns what has happened so far."""
        call = EndpointCall("m", actor, 1, endpoint, [])
        hooks.run(hooks.endpoint_enter, call)
        self.services.told.append("runs")
        hooks.run(hooks.endpoint_exit, call)
        return self.services.told

    def look(self) -> Any:
        return self.faults.look(LookOnRank("p")).per

    def end(self) -> Any:
        return self.faults.end(EndOnRank("p")).per


@pytest.fixture
def rank() -> Iterator[Rank]:
    made = Rank()
    yield made
    hooks.clear()


def test_before_a_call_and_after_it(rank: Rank) -> None:
    rank.plan(Planned("kill", [1], "step", 2), Planned("cut", [0, 1], "step", 1, after=True))
    assert rank.run("step") == ["runs", 1, "cut"]
    assert rank.run("step") == ["runs", 1, "cut", 0, "kill", "runs"]
    assert rank.run("step")[-1] == "runs", "once"
    assert rank.look().calls == [3, 3] and rank.look().happening == [1, 0]


def test_what_does_not_count(rank: Rank) -> None:
    rank.plan(Planned("kill", [1], "step", 1, "b"), Planned("kill", [0], "step", 1))
    rank.plan(Planned("stop", [1], "step", 1))  # repeated: has no effect
    assert rank.run("step") == ["runs"] and rank.run("save", "b") == ["runs"] * 2
    assert rank.look().calls == [0, 0]
    assert rank.run("step", "b") == ["runs"] * 2 + [0, "kill", "runs"]


def test_hooks_are_there_only_while_they_are_needed(rank: Rank) -> None:
    rank.plan(Planned("kill", [1], "step", 1))
    assert len(hooks.endpoint_enter) == 1 and not hooks.endpoint_exit
    assert rank.end().happening == []
    assert not hooks.endpoint_enter
    with pytest.raises(MeshError, match="no such plan"):
        rank.look()
    rank.plan(Planned("kill", [0], "step", 1))
    assert not hooks.endpoint_enter, "it is of other ranks"


def test_without_the_root_nothing_happens(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "strict", True)
    rank.plan(Planned("kill", [1], "step", 1), Planned("kill", [1], "step", 2))
    rank.services.refuses = True
    with pytest.raises(MeshError):
        rank.run("step")
    entered = hooks.endpoint_enter[0]
    rank.end()
    hooks.endpoint_enter.append(entered)  # a call that had begun meanwhile
    assert rank.run("step") == ["runs"], "the plan has ended, and that is no error"


def test_work(rank: Rank) -> None:
    rank.plan(Planned("kill", [1], "step", 1))
    assert not rank.look().busy
    rank.services.now = [], [Workload("a", 1, 1, False)]
    assert rank.look().busy
    rank.services.now = [ActorState("a", 1, EndpointCall("m", "a", 1, "step", []), None)], []
    assert rank.look().busy


def test_a_connection_is_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        context = CallContext(
            cast(Any, None), "step", Shape.unity(), 0, 1, cast(Any, SimpleNamespace(fileno=ours.fileno))
        )
        token = enter(context)
        try:
            rank_side._cut()
        finally:
            leave(token)
        assert theirs.recv(1) == b""
    rank_side._cut()  # no call runs here


@pytest.mark.parametrize(("kind", "ends_by"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
def test_signals_come_before_the_next_instruction(kind: str, ends_by: signal.Signals) -> None:
    code = f"from meshrt.faults.rank import _FAULTS; _FAULTS[{kind!r}](); print('went on')"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert (os.WSTOPSIG if kind == "stop" else os.WTERMSIG)(status) == ends_by
        process.returncode = None if kind == "stop" else -ends_by
        process.kill() if kind == "stop" else None
        assert process.stdout is not None and process.stdout.read() == b""

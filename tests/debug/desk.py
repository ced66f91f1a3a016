"""The root's side of the debugger, played by a test: takes what ranks report, and puts operations to them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from meshrt.debug.rank_operations import (
    Ended,
    Input,
    Interrupted,
    InterruptRank,
    Missed,
    OfSession,
    Printed,
    ReadSource,
    Resumed,
    Source,
    Stopped,
)
from meshrt.hooks.operations import Data, Operation
from meshrt.mesh.program import start_root

__all__ = ["Desk", "desk"]

WAIT = 20.0

A = TypeVar("A", bound=Data)
R = TypeVar("R", bound=OfSession)


class Desk:
    """Listens to every rank of the program. Rank 0 of the newest mesh is meant unless another one is named."""

    def __init__(self) -> None:
        self._services = start_root().services
        self._events: queue.SimpleQueue[tuple[int, OfSession]] = queue.SimpleQueue()
        self._kept: list[tuple[int, OfSession]] = []
        self._seqs: dict[tuple[int, str, str], int] = {}
        for report in (Stopped, Resumed, Ended, Printed, Missed):
            self._services.on_report(report, lambda mesh_id, rank, report: self._events.put((rank, report)))
        self._services.serve_ranks(ReadSource, lambda mesh_id, rank, asked: Source(None))

    def begin(self, operation: Operation[A], rank: int = 0) -> concurrent.futures.Future[A]:
        """Put an operation to a rank and do not wait."""
        mesh_id = self._services.meshes()[-1].mesh_id

        async def request() -> A:
            return await self._services.ask_rank(mesh_id, rank, operation)

        return asyncio.run_coroutine_threadsafe(request(), start_root().loop.running)

    def ask(self, operation: Operation[A], rank: int = 0) -> A:
        """Put an operation to a rank; return its answer."""
        return self.begin(operation, rank).result(WAIT)

    def event(self, kind: type[R], rank: int = 0, actor: str = "", thread: str = "") -> R:
        """Return the next report of that kind of that rank (of that actor, if one is named); others are kept."""
        while True:
            for index, (sender, report) in enumerate(self._kept):
                fits = sender == rank and actor in ("", report.actor) and thread == report.thread
                if fits and isinstance(report, kind):
                    del self._kept[index]
                    return report
            self._kept.append(self._events.get(timeout=WAIT))

    def quiet(self, kind: type[OfSession]) -> bool:
        """Whether no report of that kind has come that the test has not read."""
        while not self._events.empty():
            self._kept.append(self._events.get())
        return not any(isinstance(report, kind) for _, report in self._kept)

    def stopped(self, rank: int = 0, actor: str = "", thread: str = "") -> Stopped:
        """Wait for the next prompt."""
        stop = self.event(Stopped, rank, actor, thread)
        self._seqs[rank, stop.actor, thread] = stop.seq
        return stop

    def type(self, line: str, rank: int = 0, actor: str = "worker", thread: str = "", **more: Any) -> None:
        """Type a line at the last prompt."""
        assert self.ask(Input(actor, thread, self._seqs[rank, actor, thread], line, **more), rank).accepted

    def show(self, line: str, rank: int = 0, actor: str = "worker", thread: str = "", **more: Any) -> Stopped:
        """Type a line that answers without resuming; return the next prompt."""
        self.type(line, rank, actor, thread, **more)
        return self.stopped(rank, actor, thread)

    def step(self, line: str, rank: int = 0, actor: str = "worker", thread: str = "") -> Stopped:
        """Type a line that resumes; return the next stop."""
        self.type(line, rank, actor, thread)
        self.event(Resumed, rank, actor, thread)
        return self.stopped(rank, actor, thread)

    def let_go(self, line: str = "c", rank: int = 0, actor: str = "worker", thread: str = "") -> None:
        """Type a line that resumes for good."""
        self.type(line, rank, actor, thread)
        self.event(Resumed, rank, actor, thread)

    def request_stop(self, rank: int = 0, actor: str = "worker") -> Interrupted:
        """Interrupt an actor; return what that has found."""
        return self.ask(InterruptRank(actor), rank).same

    def interrupt(self, rank: int = 0, actor: str = "worker") -> Stopped:
        """Interrupt an actor that must be busy; return the stop."""
        answer = self.request_stop(rank, actor)
        assert answer.state == "asked", answer
        return self.stopped(rank, actor)


@contextmanager
def desk() -> Iterator[Desk]:
    """A desk of this very program, which has a mesh."""
    yield Desk()

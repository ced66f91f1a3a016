"""The root's side of the debugger, played by a test: takes what ranks report, and puts operations to them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from meshrt.hooks.facts import Body
from meshrt.mesh.program import start_root

__all__ = ["Desk", "desk"]

WAIT = 20.0
_EVENTS = ("debug.stopped", "debug.resumed", "debug.ended", "debug.output", "debug.missed")


class Desk:
    """Listens to every rank of the program. Rank 0 of the newest mesh is meant unless another one is named."""

    def __init__(self) -> None:
        self._services = start_root().services
        self._events: queue.SimpleQueue[tuple[str, int, Body]] = queue.SimpleQueue()
        self._kept: list[tuple[str, int, Body]] = []
        self._seqs: dict[tuple[int, str, str], int] = {}
        for event in _EVENTS:
            self._services.rank_events[event] = self._listener(event)
        self._services.rank_operations["debug.source"] = lambda mesh_id, rank, body: {"text": None}

    def _listener(self, event: str) -> Any:
        return lambda mesh_id, rank, body: self._events.put((event, rank, body))

    def begin(self, operation: str, rank: int = 0, **body: Any) -> concurrent.futures.Future[Body]:
        """Put an operation to a rank and do not wait."""
        mesh_id = self._services.meshes()[-1].mesh_id

        async def request() -> Body:
            return await self._services.request_rank(mesh_id, rank, operation, body)

        return asyncio.run_coroutine_threadsafe(request(), start_root().loop.running)

    def ask(self, operation: str, rank: int = 0, **body: Any) -> Body:
        """Put an operation to a rank; return its answer."""
        return self.begin(operation, rank, **body).result(WAIT)

    def event(self, name: str, rank: int = 0, actor: str = "", thread: str = "") -> Body:
        """Return the next event of that name of that rank (of that actor, if one is named); others are kept."""
        while True:
            for index, (event, sender, body) in enumerate(self._kept):
                fits = event == name and sender == rank and actor in ("", body["actor"]) and thread == body["thread"]
                if fits:
                    del self._kept[index]
                    return body
            self._kept.append(self._events.get(timeout=WAIT))

    def quiet(self, name: str) -> bool:
        """Whether no event of that name has come that nobody has asked for."""
        while not self._events.empty():
            self._kept.append(self._events.get())
        return not any(event == name for event, _, _ in self._kept)

    def stopped(self, rank: int = 0, actor: str = "", thread: str = "") -> Body:
        """Wait for the next prompt."""
        body = self.event("debug.stopped", rank, actor, thread)
        self._seqs[rank, body["actor"], thread] = body["seq"]
        return body

    def type(self, line: str, rank: int = 0, actor: str = "worker", thread: str = "", **more: Any) -> None:
        """Type a line at the last prompt."""
        seq = self._seqs[rank, actor, thread]
        answer = self.ask("debug.input", rank, actor=actor, thread=thread, seq=seq, line=line, **more)
        assert answer["accepted"]

    def show(self, line: str, rank: int = 0, actor: str = "worker", thread: str = "", **more: Any) -> Body:
        """Type a line that answers without resuming; return the next prompt."""
        self.type(line, rank, actor, thread, **more)
        return self.stopped(rank, actor, thread)

    def step(self, line: str, rank: int = 0, actor: str = "worker", thread: str = "") -> Body:
        """Type a line that resumes; return the next stop."""
        self.type(line, rank, actor, thread)
        self.event("debug.resumed", rank, actor, thread)
        return self.stopped(rank, actor, thread)

    def let_go(self, line: str = "c", rank: int = 0, actor: str = "worker", thread: str = "") -> None:
        """Type a line that resumes for good."""
        self.type(line, rank, actor, thread)
        self.event("debug.resumed", rank, actor, thread)

    def interrupt(self, rank: int = 0, actor: str = "worker") -> Body:
        """Interrupt an actor that must be busy; return the stop."""
        answer = self.ask("debug.interrupt", rank, actor=actor)
        assert answer["state"] == "asked", answer
        return self.stopped(rank, actor)


@contextmanager
def desk() -> Iterator[Desk]:
    """A desk of this very program, which has a mesh."""
    yield Desk()

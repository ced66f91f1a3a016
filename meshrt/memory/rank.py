"""The rank's side of the memory view: serves the operations of `meshrt.memory.operations`.

Variables and the holders of references are found on a separate thread: the control thread goes on answering meanwhile,
and a rank that is stopped in the debugger answers too. One at a time.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from meshrt.hooks.operations import Answers, Grouped, Nothing
from meshrt.hooks.services import RankServices
from meshrt.memory.heap import heap
from meshrt.memory.operations import FindHolders, Heap, Holders, MeasureVariables, ReadHeap, SetLimit, Variables
from meshrt.transport.threads import RuntimeThread

__all__ = ["RankMemory", "load"]

_log = logging.getLogger("meshrt")

A = TypeVar("A")


class RankMemory:
    """Measures this process."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        #: Measurements to make; their thread is started by the first one.
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def limit(self, asked: SetLimit) -> Nothing:
        """Set the limit of this process."""
        from meshrt.memory.limit import Limit  # start-up: few programs have one

        Limit(self._services, asked.bytes)
        return Nothing()

    def heap(self, _asked: ReadHeap) -> Grouped[None, Heap]:
        """Return the facts of the allocators. On the control thread."""
        return Grouped(None, heap())

    def variables(self, asked: MeasureVariables, answer: Answers[Grouped[Variables, Heap]]) -> None:
        """Measure the variables on the separate thread, and answer then."""
        self._begin(lambda: self._sizes(asked), answer)

    def holding(self, asked: FindHolders, answer: Answers[Grouped[Holders, None]]) -> None:
        """Find the holders of references on the separate thread, and answer then."""
        self._begin(lambda: self._holding(asked), answer)

    def _begin(self, measure: Callable[[], A], answer: Answers[A]) -> None:
        self._asked.put(lambda: self._answer(measure, answer))
        if self._thread is None:
            # One thread for all requests: threads must not end while faulthandler writes the stacks of a silent rank.
            self._thread = RuntimeThread(target=self._serve, name="meshrt-memory", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while True:
            self._asked.get()()

    def _answer(self, measure: Callable[[], A], answer: Answers[A]) -> None:
        try:
            found = measure()
        except Exception as error:
            if not isinstance(error, (MemoryError, OSError)):  # a process that is short of memory: the answer says it
                _log.exception("the variables of rank %d", self._services.rank)
            answer(None, f"{type(error).__name__}: {error}")
        else:
            answer(found, "")

    def _sizes(self, asked: MeasureVariables) -> Grouped[Variables, Heap]:
        if asked.opened:
            from meshrt.memory.opening import opened as measure  # start-up: most ranks are never asked
        else:
            from meshrt.memory.rows import rows as measure  # start-up: most ranks are never asked

        same, counted = measure(self._services.actors(), asked)
        return Grouped(same, heap(counted))

    def _holding(self, asked: FindHolders) -> Grouped[Holders, None]:
        from meshrt.memory.rows import holding  # start-up: most ranks are never asked

        return Grouped(holding(self._services.actors(), asked))


def load(services: RankServices) -> None:
    """Serve the memory view: called once, by the first request."""
    memory = RankMemory(services)
    services.serve(SetLimit, memory.limit)
    services.serve(ReadHeap, memory.heap)
    services.serve_later(MeasureVariables, memory.variables)
    services.serve_later(FindHolders, memory.holding)

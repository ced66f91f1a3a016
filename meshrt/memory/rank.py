"""The rank's side of the memory view.

* operation ``memory.limit`` {bytes}: see `meshrt.memory.limit`.
* operation ``memory.heap`` {}: what the allocators of this process tell, see `meshrt.memory.heap`.
* operation ``memory.variables`` {actor, frames, milliseconds, objects, most}: what the variables hold, the largest
  ``most`` one by one. On a thread of its own: the control thread goes on answering meanwhile, and a rank that stands
  in the debugger answers too. One at a time.
  With ``opened``, the name of a variable, what is inside of that: see `meshrt.memory.opening`.
* operation ``memory.holding`` {actor, milliseconds, objects, name}: which variables hold references, in the same way;
  see `meshrt.memory.holding`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from meshrt.hooks.facts import Answer, Body
from meshrt.hooks.services import RankServices
from meshrt.memory.heap import heap
from meshrt.transport.threads import RuntimeThread

__all__ = ["RankMemory", "load"]


_Measure = Callable[[Body], Body]

_log = logging.getLogger("meshrt")


class RankMemory:
    """Measures this process."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        #: What is to be measured; its thread is there from the first question on.
        self._asked: queue.SimpleQueue[tuple[_Measure, Body, Answer]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def limit(self, body: Body) -> Body:
        """Keep a limit from now on: ``{"bytes"}``."""
        from meshrt.memory.limit import Limit  # start-up: few programs have one

        Limit(self._services, int(body["bytes"]))
        return {}

    def heap(self, body: Body) -> Body:
        """Tell of the allocators."""
        return {"same": None, "per": heap()}

    def variables(self, body: Body, answer: Answer) -> None:
        """Measure the variables, and answer then."""
        self._ask(self._sizes, body, answer)

    def holding(self, body: Body, answer: Answer) -> None:
        """Look for what holds references, and answer then."""
        self._ask(self._holding, body, answer)

    def _ask(self, measure: _Measure, body: Body, answer: Answer) -> None:
        self._asked.put((measure, body, answer))
        if self._thread is None:
            # One for all questions: faulthandler, by which silent ranks are asked, must not meet threads that end.
            self._thread = RuntimeThread(target=self._serve, name="meshrt-memory", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while True:
            measure, body, answer = self._asked.get()
            try:
                found = measure(body)
            except Exception as error:
                _log.exception("the variables of rank %d", self._services.rank)
                answer(None, f"{type(error).__name__}: {error}")
            else:
                answer(found, "")

    def _sizes(self, body: Body) -> Body:
        if body.get("opened"):
            from meshrt.memory.opening import opened as measure  # start-up: most ranks are never asked
        else:
            from meshrt.memory.rows import rows as measure  # start-up: most ranks are never asked

        same = measure(self._services.actors(), body)
        return {"same": same, "per": {"counted": same.pop("counted"), **heap()}}

    def _holding(self, body: Body) -> Body:
        from meshrt.memory.holding import holding  # start-up: most ranks are never asked

        return {"same": holding(self._services.actors(), body)}


def load(services: RankServices) -> None:
    """Serve the memory view: called once, by the first question."""
    memory = RankMemory(services)
    services.operations["memory.limit"] = memory.limit
    services.operations["memory.heap"] = memory.heap
    services.deferred_operations["memory.variables"] = memory.variables
    services.deferred_operations["memory.holding"] = memory.holding

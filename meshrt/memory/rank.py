"""The rank's side of the memory view.

* operation ``memory.limit`` {bytes}: see `meshrt.memory.limit`.
* operation ``memory.heap`` {}: the facts of this process's allocators, see `meshrt.memory.heap`.
* operation ``memory.variables`` {actor, frames, milliseconds, objects, most}: what the variables hold, the largest
  ``most`` one by one. On a separate thread: the control thread goes on answering meanwhile, and a rank that is stopped
  in the debugger answers too. One at a time.
  With ``opened``, the name of a variable: what is inside it, see `meshrt.memory.opening`.
* operation ``memory.holding`` {actor, milliseconds, objects, name}: which variables hold references, on the same
  thread; see `meshrt.memory.holding`.
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
        #: Requests to measure; their thread is started by the first one.
        self._asked: queue.SimpleQueue[tuple[_Measure, Body, Answer]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def limit(self, body: Body) -> Body:
        """Serve ``memory.limit``: set the limit to ``{"bytes"}``."""
        from meshrt.memory.limit import Limit  # start-up: few programs have one

        Limit(self._services, int(body["bytes"]))
        return {}

    def heap(self, body: Body) -> Body:
        """Serve ``memory.heap``. On the control thread."""
        return {"same": None, "per": heap()}

    def variables(self, body: Body, answer: Answer) -> None:
        """Serve ``memory.variables``: measure the variables on the separate thread, and answer then."""
        self._ask(self._sizes, body, answer)

    def holding(self, body: Body, answer: Answer) -> None:
        """Serve ``memory.holding``: find the holders of references on the separate thread, and answer then."""
        self._ask(self._holding, body, answer)

    def _ask(self, measure: _Measure, body: Body, answer: Answer) -> None:
        self._asked.put((measure, body, answer))
        if self._thread is None:
            # One thread for all requests: threads must not end while faulthandler writes the stacks of a silent rank.
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
    """Serve the memory view: called once, by the first request."""
    memory = RankMemory(services)
    services.operations["memory.limit"] = memory.limit
    services.operations["memory.heap"] = memory.heap
    services.deferred_operations["memory.variables"] = memory.variables
    services.deferred_operations["memory.holding"] = memory.holding

"""The rank's side of ``top``. On the control thread.

* operation ``top.work`` {}: the work of the actors, ``[name, endpoint that runs, calls so far, waiting, more]`` of each
  (`meshrt.hooks.facts.Workload`); ``devices``: bytes that torch keeps on each; ``told``: when, monotonic seconds.
"""

from __future__ import annotations

import time

from meshrt.hooks.facts import Body
from meshrt.hooks.services import RankServices
from meshrt.memory.heap import devices

__all__ = ["RankWork", "load"]


class RankWork:
    """Answers with the work of this rank. It keeps no state: ranks count calls anyway, the rest is read on request."""

    def __init__(self, services: RankServices) -> None:
        self._services = services

    def work(self, _body: Body) -> Body:
        """Serve ``top.work``."""
        runs = {actor.name: actor.serves for actor in self._services.actors()}
        actors = []
        for load in self._services.workload():
            call = runs.get(load.actor)
            actors.append([load.actor, call.endpoint if call is not None else "", load.calls, load.waiting, load.more])
        kept = {name: facts["kept"] for name, facts in devices().items()}
        return {"same": None, "per": {"actors": actors, "devices": kept, "told": time.monotonic()}}


def load(services: RankServices) -> None:
    """Serve ``top``: called once, by the first request."""
    services.operations["top.work"] = RankWork(services).work

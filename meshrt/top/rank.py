"""The rank's side of ``top``. On the control thread."""

from __future__ import annotations

import time

from meshrt.hooks.operations import Grouped
from meshrt.hooks.services import RankServices
from meshrt.memory.heap import devices
from meshrt.top.operations import ActorWork, Work, WorkOfRank

__all__ = ["RankWork", "load"]


class RankWork:
    """Answers with the work of this rank. It keeps no state: ranks count calls anyway, the rest is read on request."""

    def __init__(self, services: RankServices) -> None:
        self._services = services

    def work(self, _work: Work) -> Grouped[None, WorkOfRank]:
        """Return the work of the actors."""
        runs = {actor.name: actor.serves for actor in self._services.actors()}
        actors = []
        for load in self._services.workload():
            call = runs.get(load.actor)
            endpoint = call.endpoint if call is not None else ""
            actors.append(ActorWork(load.actor, endpoint, load.calls, load.waiting, load.more))
        kept = {name: device.kept for name, device in devices().items()}
        return Grouped(None, WorkOfRank(actors, kept, time.monotonic()))


def load(services: RankServices) -> None:
    """Serve ``top``: called once, by the first request."""
    services.serve(Work, RankWork(services).work)

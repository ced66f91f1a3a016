"""The rank's side of ``top``. On the control thread."""

from __future__ import annotations

import time

from meshrt.hooks.operations import Grouped
from meshrt.hooks.services import RankServices
from meshrt.memory.heap import devices
from meshrt.top.operations import ActorWork, Work, WorkOfRank

__all__ = ["load", "work"]


def work(services: RankServices) -> WorkOfRank:
    """Return the work of this rank. Nothing is kept for it: ranks count calls anyway, the rest is read on request."""
    runs = {actor.name: actor.serves for actor in services.actors()}
    actors = []
    for load in services.workload():
        call = runs.get(load.actor)
        endpoint = call.endpoint if call is not None else ""
        actors.append(ActorWork(load.actor, endpoint, load.calls, load.waiting, load.more))
    kept = {name: device.kept for name, device in devices().items()}
    return WorkOfRank(actors, kept, time.monotonic())


def load(services: RankServices) -> None:
    """Serve ``top``: called once, by the first request."""
    services.serve(Work, lambda _asked: Grouped(None, work(services)))

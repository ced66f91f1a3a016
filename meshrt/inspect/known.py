"""Root side: the waits and the threads that ranks have reported by themselves. No rank is asked."""

from __future__ import annotations

from collections.abc import Mapping

from meshrt.hooks.services import RootServices
from meshrt.inspect.waits import WaitGraph

__all__ = ["ACTIVITY", "actors_known", "waits_known"]

#: The key of `meshrt.inspect.root.Activity` in `RootServices.tables`, once a rank has reported something.
ACTIVITY = "inspect.activity"


def waits_known(services: RootServices) -> WaitGraph:
    """Return the waits of the ranks that are known to be blocked or stopped."""
    activity = services.tables.get(ACTIVITY)
    known: WaitGraph = WaitGraph() if activity is None else activity.waits()
    return known


def actors_known(services: RootServices, mesh_id: str, rank: int) -> Mapping[int, str]:
    """Return the names of the actors of a rank that are not on its main thread, by the ident of their thread."""
    activity = services.tables.get(ACTIVITY)
    known: Mapping[int, str] = {} if activity is None else activity.actors(mesh_id, rank)
    return known

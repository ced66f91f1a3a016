"""The root's side of inspection: what every actor was doing when it was last heard of. On the root's loop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshrt.hooks import Body, RootServices

__all__ = ["Activity", "ActivityRow", "load"]


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """What an actor does.

    Attributes:
        state: ``"running"``, ``"blocked"``, ``"idle"``, ``"stopped"`` (in the debugger); or, when its process does not
            answer, ``"stopped by a signal"`` or ``"busy"``.
        since: Since when, seconds since the epoch.
        place: File, line and function of the user's; ``("", 0, "")`` where it is not known.
        endpoint: What it runs.
    """

    state: str
    since: float
    place: tuple[str, int, str] = ("", 0, "")
    endpoint: str = ""


class Activity:
    """Kept from what ranks and host agents tell by themselves; nobody is asked. `RootServices.tables` has it."""

    def __init__(self, services: RootServices) -> None:
        self._rows: dict[tuple[str, int, str], ActivityRow] = {}
        self._silent: dict[tuple[str, int], tuple[str, float]] = {}
        #: When ranks have answered again.
        self._back: dict[tuple[str, int], float] = {}
        self._actors: dict[tuple[str, int], dict[int, str]] = {}
        for mesh in services.meshes():
            for rank, (state, since) in mesh.get("silent", {}).items():
                self._silent[mesh["mesh_id"], rank] = (state, since)

    def get(self, mesh_id: str, rank: int, actor: str) -> ActivityRow | None:
        """Return what an actor does; None when it was never seen to stand still."""
        row = self._rows.get((mesh_id, rank, actor))
        silent = self._silent.get((mesh_id, rank))
        if silent is None:
            back = self._back.get((mesh_id, rank), 0.0)
            if row is None:
                return ActivityRow("running", back) if back else None
            return row if row.state == "blocked" or row.since > back else replace(row, since=back)
        state, since = silent
        place, endpoint = (row.place, row.endpoint) if row is not None else (("", 0, ""), "")
        return ActivityRow("stopped by a signal" if state == "stopped" else state, since, place, endpoint)

    def progress(self, mesh_id: str, rank: int, body: Body) -> None:
        """A rank tells that an endpoint stands still, or goes on."""
        file, line, function = body["place"]
        row = ActivityRow(body["state"], body["since"], (file, line, function), body["endpoint"])
        self._rows[mesh_id, rank, body["actor"]] = row

    def actors(self, mesh_id: str, rank: int) -> Mapping[int, str]:
        """Return the names of the actors of a rank that are not on its main thread, by the ident of their thread."""
        return self._actors.get((mesh_id, rank), {})

    def placed(self, mesh_id: str, rank: int, body: Body) -> None:
        """A rank tells the threads of all its actors that are not on its main thread."""
        self._actors[mesh_id, rank] = dict(body["actors"])

    def silent(self, mesh_id: str, rank: int, state: str) -> None:
        """A rank does not answer, or answers again."""
        if state:
            self._silent[mesh_id, rank] = (state, time.time_ns() / 1e9)
        elif self._silent.pop((mesh_id, rank), None) is not None:
            self._back[mesh_id, rank] = time.time_ns() / 1e9

    def gone(self, mesh_id: str, rank: int, _how: str) -> None:
        """A rank has ended."""
        self._silent.pop((mesh_id, rank), None)
        self._actors.pop((mesh_id, rank), None)
        self._back.pop((mesh_id, rank), None)
        for key in [key for key in self._rows if key[:2] == (mesh_id, rank)]:
            del self._rows[key]


def load(services: RootServices) -> None:
    """Keep the table: called once, by the first event."""
    activity = services.tables["inspect.activity"] = Activity(services)
    services.rank_events["inspect.progress"] = activity.progress
    services.rank_events["inspect.placed"] = activity.placed
    services.rank_silent.append(activity.silent)
    services.rank_gone.append(activity.gone)

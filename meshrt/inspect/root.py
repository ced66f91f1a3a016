"""The root's side of inspection: what every actor was doing at its last report. On the root's loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from meshrt.hooks.facts import Body, Wait
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import RootServices
from meshrt.inspect.known import ACTIVITY
from meshrt.inspect.looking import Looking
from meshrt.inspect.standstill import standstill
from meshrt.inspect.waits import Waiter, WaitGraph, waits_from_wire
from meshrt.inspect.waittext import doing, wait_lines, waits_of
from meshrt.program.places import Place
from meshrt.program.program import program_of
from meshrt.program.states import State
from meshrt.program.words import BLOCKED, NOT_ANSWERING, RUNNING, STANDING, silence

__all__ = ["Activity", "ActivityRow", "load"]


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """What an actor does.

    Attributes:
        state: ``"running"``, ``"blocked"``, ``"idle"``, ``"stopped"`` (in the debugger); or, when its process does not
            answer, ``"stopped by a signal"`` or ``"busy"``.
        since: Start of this state, seconds since the epoch.
        place: File, line and function in user code; ``("", 0, "")``: not known.
        endpoint: The endpoint that it runs.
        waits: The calls that it waited for at the time of its report.
        told: Time of its report, on the monotonic clock and on the clock of deadlines, seconds.
        beside: It waits in a concurrent endpoint.
    """

    state: str
    since: float
    place: tuple[str, int, str] = ("", 0, "")
    endpoint: str = ""
    waits: tuple[Wait, ...] = ()
    beside: bool = False
    told: tuple[float, float] = (0.0, 0.0)

    def waits_at(self, now: float, clock: float) -> list[Wait]:
        """Return the calls that it waits for, at a later time of both clocks (seconds)."""
        passed, counted = now - self.told[0], clock - self.told[1]
        return [
            replace(
                wait,
                seconds=wait.seconds + passed,
                left=None if wait.left is None else max(0.0, wait.left - counted),
            )
            for wait in self.waits
        ]


class Activity:
    """A table of what ranks and host agents report by themselves; no rank is asked. It is in `RootServices.tables`."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._rows: dict[tuple[str, int, str], ActivityRow] = {}
        self._silent: dict[tuple[str, int], tuple[str, float]] = {}
        #: When silent ranks answered again, seconds since the epoch.
        self._back: dict[tuple[str, int], float] = {}
        self._actors: dict[tuple[str, int], dict[int, str]] = {}
        for mesh in services.meshes():
            for rank, silent in mesh.silent.items():
                self._silent[mesh.mesh_id, rank] = silent

    def get(self, mesh_id: str, rank: int, actor: str) -> ActivityRow | None:
        """Return what an actor does; None: it was never reported as blocked or stopped."""
        row = self._rows.get((mesh_id, rank, actor))
        silent = self._silent.get((mesh_id, rank))
        if silent is None:
            back = self._back.get((mesh_id, rank), 0.0)
            if row is None:
                return ActivityRow(RUNNING, back) if back else None
            return row if row.state == BLOCKED or row.since > back else replace(row, since=back)
        state, since = silent
        place, endpoint = (row.place, row.endpoint) if row is not None else (("", 0, ""), "")
        return ActivityRow("stopped by a signal" if state == "stopped" else state, since, place, endpoint)

    def state(self, mesh_id: str, rank: int, actor: str) -> State | None:
        """Return the last reported state of an actor; None: it was never reported as blocked or stopped."""
        row = self.get(mesh_id, rank, actor)
        if row is None:
            return None
        word = NOT_ANSWERING if (mesh_id, rank) in self._silent else row.state
        return State(word, row.since, Place.from_wire(row.place))

    def progress(self, mesh_id: str, rank: int, body: Body) -> None:
        """Take in a report of a rank: an endpoint is blocked or stopped, or goes on."""
        file, line, function = body["place"]
        waits = tuple(waits_from_wire(body["waits"]))
        place = (file, line, function)
        told = time.monotonic(), self._services.clock()
        row = ActivityRow(body["state"], body["since"], place, body["endpoint"], waits, body["beside"], told)
        self._rows[mesh_id, rank, body["actor"]] = row

    def waits(self) -> WaitGraph:
        """Return the waits of all actors that are known to be blocked or stopped. Any thread."""
        graph = WaitGraph()
        now, clock = time.monotonic(), self._services.clock()
        for key, row in tuple(self._rows.items()):
            if row.state in STANDING:
                file, line, function = row.place
                frames = [[file, line, function, False]] if file else []
                words = doing({"state": row.state, "endpoint": row.endpoint, "frames": frames, "holder": ""})
                graph.nodes[key] = Waiter(row.state, words, row.waits_at(now, clock), row.beside)
        for rank, (state, _) in tuple(self._silent.items()):
            graph.ranks[rank] = ("silent", f"not answering: {silence(state)}")
        return graph

    def wait_lines(self, most: int) -> list[str]:
        """Return the waits as lines for a user: at most ``most``, and one that counts the others. Any thread."""
        return wait_lines(waits_of(self.waits(), self._names()), most)

    def standstill(self, keys: Iterable[tuple[str, int, str]]) -> str:
        """Say what blocks actors of ranks that do not answer; "": the known waits do not show it. Any thread."""
        found = standstill(self.waits(), self._names(), keys)
        return found.text if found is not None else ""

    def _names(self) -> dict[str, str]:
        return {mesh.mesh_id: mesh.name for mesh in self._services.meshes()}

    def actors(self, mesh_id: str, rank: int) -> Mapping[int, str]:
        """Return the names of the actors of a rank that are not on its main thread, by the ident of their thread."""
        return self._actors.get((mesh_id, rank), {})

    def placed(self, mesh_id: str, rank: int, body: Body) -> None:
        """Take in a report of a rank: the threads of all its actors that are not on its main thread."""
        self._actors[mesh_id, rank] = dict(body["actors"])

    def silent(self, mesh_id: str, rank: int, state: str) -> None:
        """Take in that a rank does not answer, or (``state`` is "") answers again."""
        if state:
            self._silent[mesh_id, rank] = (state, time.time_ns() / 1e9)
        elif self._silent.pop((mesh_id, rank), None) is not None:
            self._back[mesh_id, rank] = time.time_ns() / 1e9

    def gone(self, mesh_id: str, rank: int, _fate: Fate) -> None:
        """Forget a rank that has ended."""
        self._silent.pop((mesh_id, rank), None)
        self._actors.pop((mesh_id, rank), None)
        self._back.pop((mesh_id, rank), None)
        for key in [key for key in self._rows if key[:2] == (mesh_id, rank)]:
            del self._rows[key]


def load(services: RootServices) -> None:
    """Keep the table, and serve terminals. Called once, at the first event or the first request."""
    activity = services.tables[ACTIVITY] = Activity(services)
    program_of(services).sources.activity = activity
    Looking(services).serve()
    services.rank_events["inspect.progress"] = activity.progress
    services.rank_events["inspect.placed"] = activity.placed
    services.rank_silent.append(activity.silent)
    services.rank_gone.append(activity.gone)

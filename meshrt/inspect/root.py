"""The root's side of inspection: what every actor was doing at its last report. On the root's loop."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from meshrt.collectives.facts import GroupsMade, WorldFacts
from meshrt.collectives.late import add_collectives
from meshrt.hooks.facts import Wait
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import RootServices
from meshrt.inspect.looking import Looking
from meshrt.inspect.operations import Placed, Progress
from meshrt.inspect.records import Record, StackFrame
from meshrt.inspect.standstill import standstill
from meshrt.inspect.waittext import doing, wait_lines, waits_of
from meshrt.program.places import Place
from meshrt.program.program import program_of
from meshrt.program.states import State
from meshrt.program.waits import Key, Waiter, WaitGraph
from meshrt.program.words import BLOCKED, NOT_RUNNING, RUNNING, silence
from meshrt.selection import counted, fold_ranks
from meshrt.wire.control import Address

__all__ = ["Activity", "load"]

#: The key of `Activity` in `RootServices.tables`: the runtime tells by it what the script waits for.
_ACTIVITY = "inspect.activity"
#: Places that are named to the user.
_MOST = 2


@dataclass(frozen=True, slots=True)
class _Told:
    """A report of an actor, and when it came: on the monotonic clock and on the clock of deadlines, seconds."""

    progress: Progress
    when: float
    clock: float

    def waits_at(self, now: float, clock: float) -> list[Wait]:
        """Return the calls that it waits for, at a later time of both clocks."""
        passed, counted = now - self.when, clock - self.clock
        return [
            replace(
                wait, seconds=wait.seconds + passed, left=None if wait.left is None else max(0.0, wait.left - counted)
            )
            for wait in self.progress.waits
        ]


class Activity:
    """A table of what ranks and host agents report by themselves; no rank is asked. It is in `RootServices.tables`."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._told: dict[Key, _Told] = {}
        #: When silent ranks answered again, seconds since the epoch.
        self._back: dict[Address, float] = {}
        self._actors: dict[Address, dict[int, str]] = {}
        #: Names of process groups.
        self._groups: dict[Address, Sequence[str]] = {}

    def state(self, mesh_id: str, rank: int, actor: str) -> State | None:
        """Return the last reported state of an actor, whose rank may be silent now.

        None: it was never reported as blocked, stopped or idle.
        """
        row = self._told.get((mesh_id, rank, actor))
        told = row.progress if row is not None else None
        back = self._back.get((mesh_id, rank), 0.0)
        if told is None:
            return State(RUNNING, back) if back else None
        return State(told.state, told.since if told.state == BLOCKED else max(told.since, back), told.place)

    def progress(self, mesh_id: str, rank: int, progress: Progress) -> None:
        """Take in a report of a rank: an actor is blocked, stopped or idle, or goes on."""
        self._told[mesh_id, rank, progress.actor] = _Told(progress, time.monotonic(), self._services.clock())

    def waits(self) -> WaitGraph:
        """Return the waits of all actors that are known to be blocked or stopped. Any thread."""
        graph = WaitGraph()
        worlds: dict[str, dict[int, WorldFacts]] = {}
        now, clock = time.monotonic(), self._services.clock()
        for key, row in tuple(self._told.items()):
            told = row.progress
            if told.state in NOT_RUNNING:
                words = _words(told.endpoint, told.state, told.place)
                graph.nodes[key] = Waiter(told.state, words, row.waits_at(now, clock), told.beside)
                if told.world is not None:
                    worlds.setdefault(key[0], {})[key[1]] = told.world.later(now - row.when)
        for rank, silent in self._services.silent().items():
            graph.ranks[rank] = ("silent", f"not answering: {silence(silent.state)}")
        add_collectives(graph, worlds)
        return graph

    def wait_lines(self, most: int) -> list[str]:
        """Return the waits as lines for a user: at most ``most``, and one that counts the others. Any thread."""
        return wait_lines(waits_of(self.waits(), self._names()), most)

    def standstill(self, keys: Iterable[Key]) -> str:
        """Say what blocks actors of ranks that do not answer; "": the known waits do not show it. Any thread."""
        found = standstill(self.waits(), self._names(), keys)
        return found.text if found is not None else ""

    def places(self, keys: Iterable[Key]) -> list[str]:
        """Say where actors are blocked, as far as that is known: the place with most ranks first. Any thread."""
        found: dict[Place, list[tuple[int, float]]] = {}
        silent = self._services.silent()
        for mesh_id, rank, actor in keys:
            state = self.state(mesh_id, rank, actor)
            if (mesh_id, rank) not in silent and state is not None and state.word == BLOCKED and state.place.file:
                found.setdefault(state.place, []).append((rank, state.since))
        ordered = sorted(found.items(), key=lambda entry: -len(entry[1]))
        lines = []
        for place, members in ordered[:_MOST]:
            ranks = fold_ranks(rank for rank, _ in members)
            seconds = time.time_ns() / 1e9 - min(since for _, since in members)
            word = "rank" if len(members) == 1 else "ranks"
            where = f"{place.file}:{place.line}, in {place.function}"
            lines.append(f"{word} {ranks} blocked at {where}, for {max(seconds, 1):.0f} s")
        if len(ordered) > _MOST:
            lines.append(f"others at {counted(len(ordered) - _MOST, 'more place')}")
        return lines

    def _names(self) -> dict[str, str]:
        return {mesh.mesh_id: mesh.name for mesh in self._services.meshes()}

    def actors(self, mesh_id: str, rank: int) -> Mapping[int, str]:
        """Return the names of the actors of a rank that are not on its main thread, by the ident of their thread."""
        return self._actors.get((mesh_id, rank), {})

    def placed(self, mesh_id: str, rank: int, placed: Placed) -> None:
        """Take in a report of a rank: the threads of all its actors that are not on its main thread."""
        self._actors[mesh_id, rank] = dict(placed.actors)

    def groups(self, mesh_id: str) -> Mapping[str, Collection[int]]:
        """Return the members of process groups that have not ended, base ranks, by the name of the groups."""
        found: dict[str, set[int]] = {}
        for (mesh, rank), names in self._groups.items():
            for name in names if mesh == mesh_id else ():
                found.setdefault(name, set()).add(rank)
        return found

    def grouped(self, mesh_id: str, rank: int, made: GroupsMade) -> None:
        """Take in a report of a rank: the process groups that it is a member of."""
        self._groups[mesh_id, rank] = made.names

    def silent(self, mesh_id: str, rank: int, state: str) -> None:
        """Take in that a rank answers again: ``state`` is ""."""
        if not state:
            self._back[mesh_id, rank] = time.time_ns() / 1e9

    def gone(self, mesh_id: str, rank: int, _fate: Fate) -> None:
        """Forget a rank that has ended."""
        self._actors.pop((mesh_id, rank), None)
        self._back.pop((mesh_id, rank), None)
        self._groups.pop((mesh_id, rank), None)
        for key in [key for key in self._told if key[:2] == (mesh_id, rank)]:
            del self._told[key]


@lru_cache(maxsize=1024)
def _words(endpoint: str, state: str, place: Place) -> str:
    """Say what an actor does; most ranks do the same, and each question of a terminal needs it for all of them."""
    frames = [StackFrame(place.file, place.line, place.function)] if place.file else []
    return doing(Record("", "actor", "", endpoint, state, frames))


def load(services: RootServices) -> None:
    """Keep the table, and serve terminals. Called once, at the first event or the first request."""
    activity = services.tables[_ACTIVITY] = Activity(services)
    program_of(services).sources.activity = activity
    Looking(services).serve()
    services.on_report(Progress, activity.progress)
    services.on_report(Placed, activity.placed)
    services.on_report(GroupsMade, activity.grouped)
    services.rank_silent.append(activity.silent)
    services.rank_gone.append(activity.gone)

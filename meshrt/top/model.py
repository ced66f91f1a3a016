"""The result of successive looks at ranks: rows with rates, and rows of ranks that have ended. Pure.

A rank: ``there -> dead`` when a look says so, or when no look contains its mesh any more; its row stays until
`Model.forget`. A rank that was started again is another process: its rates and its growth begin anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from meshrt.hooks.operations import Data
from meshrt.program.words import BLOCKED, DEAD, IDLE, NOT_ANSWERING, RUNNING
from meshrt.selection import Shape
from meshrt.top.operations import Looked, MeshLook, RankLook, Use, WorkOfRank

__all__ = ["ActorLoad", "Key", "Model", "Row", "Totals"]

#: Looks in a row without an answer after which a rank counts as one that does not answer.
_MISSES = 2
#: Rows of stopped meshes that are kept: a program may make meshes again and again.
_KEPT = 1000
#: Digits of rates after the point.
_DIGITS = 3
#: Columns with sums: a rank that is not dead has such a number, which may be unknown.
_SUMMED = ("cpu", "rss", "calls", "queue")
_SILENT = "has not answered for {:.0f} s: C code holds its GIL, or the machine is busy"

Key = tuple[str, int]


class ActorLoad(Data, frozen=True):
    """What an actor of a rank does: the endpoint that runs (""), calls per second, messages that wait (or more)."""

    name: str = msgspec.field(name="actor")
    endpoint: str
    calls: float | None
    waiting: int = msgspec.field(name="queue")
    more: bool


class Row(Data, frozen=True):
    """One rank, as docs/json.md says. None means not known, or not yet known: a rate needs two looks.

    Attributes:
        since: When its state began, epoch seconds.
        place, note: Where it is stopped, and further facts of its state.
        incarnation: How often it was started again.
        rss, swap, store, gpu: Bytes; ``store``: in shared memory, its own and the references it holds of others.
        growth: Bytes of growth since the second look.
        cpu: Percent of one processor.
        calls: Per second, of all its actors.
        queue: Messages that wait; ``more``: there may be more than these.
        actors: None if the rank has not answered.
    """

    mesh_id: str
    mesh: str
    rank: int
    coords: Mapping[str, int]
    host: str
    pid: int
    incarnation: int
    state: str
    since: float
    place: str
    note: str
    names: tuple[str, ...]
    rss: int | None = None
    swap: int | None = None
    store: int | None = None
    gpu: int | None = None
    growth: int | None = None
    cpu: float | None = None
    threads: int | None = None
    calls: float | None = None
    queue: int | None = None
    more: bool = False
    actors: tuple[ActorLoad, ...] | None = None

    @property
    def key(self) -> Key:
        """The identity of the rank, equal in all looks."""
        return self.mesh_id, self.rank


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over rows: ranks by state, percent of a processor, bytes, calls per second, messages that wait.

    Attributes:
        unknown: By name of a sum: how many ranks that are not dead it does not include; absent if it includes all.
    """

    states: Mapping[str, int]
    cpu: float
    rss: int
    store: int
    gpu: int
    growth: int
    calls: float
    queue: int
    unknown: Mapping[str, int] = field(default_factory=dict)

    @property
    def living(self) -> int:
        """Number of ranks that are not dead."""
        return sum(self.states.values()) - self.states.get(DEAD, 0)


@dataclass(slots=True)
class _Process:
    """The first and the last facts of one process."""

    pid: int
    seen: bool = False
    weight: int | None = None
    cpu: tuple[float, float] | None = None
    calls: tuple[Mapping[str, int], float] | None = None
    #: Looks in a row without an answer, and the time of the first of these.
    misses: int = 0
    silent: float = 0.0


class Model:
    """Builds rows from looks (`meshrt.top.operations.Looked`), one after the other. One thread."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}
        self._processes: dict[Key, _Process] = {}
        self._shown: list[Key] = []
        #: Time of the last look, epoch seconds; 0: there was none.
        self.time = 0.0

    def rows(self) -> list[Row]:
        """Return the rows of the last look, in order of ranks; of a look at all ranks, also those that have ended."""
        return [self._rows[key] for key in self._shown]

    def get(self, key: Key) -> Row | None:
        """Return the row of a rank, shown or not; None if there is none."""
        return self._rows.get(key)

    def totals(self) -> Totals:
        """Return the sums of the rows that are shown."""
        rows = self.rows()
        living = [row for row in rows if row.state != DEAD]
        return Totals(
            Counter(row.state for row in rows),
            **{name: sum(getattr(row, name) or 0 for row in rows) for name in (*_SUMMED, "store", "gpu", "growth")},
            unknown=Counter(name for name in _SUMMED for row in living if getattr(row, name) is None),
        )

    def select_none(self) -> None:
        """Show no rows: the selection matches no ranks."""
        self._shown = []

    def forget(self) -> None:
        """Drop the rows of meshes that have ended, and let growth begin anew."""
        self._rows = {key: row for key, row in self._rows.items() if key in self._processes}
        self._shown = [key for key in self._shown if key in self._rows]
        for process in self._processes.values():
            process.weight = None

    def take(self, look: Looked, *, chosen: bool = False) -> None:
        """Add a look.

        Args:
            chosen: The look was at some of the ranks only: the others keep their facts, and are not shown.
        """
        self.time = look.time
        meshes = {mesh.mesh_id: mesh for mesh in look.meshes}
        shapes = {mesh_id: Shape.from_wire(mesh.shape) for mesh_id, mesh in meshes.items()}
        shown: list[Key] = []
        for rank in look.ranks:
            key = (rank.mesh_id, rank.rank)
            coords = shapes[rank.mesh_id].coordinates(rank.rank)
            self._rows[key] = self._row(key, rank, meshes[rank.mesh_id], coords)
            shown.append(key)
        self._end(meshes.keys(), look.time)
        ended = [] if chosen else [key for key in self._rows if key[0] not in meshes]
        self._shown = shown + ended

    def _end(self, meshes: Container[str], now: float) -> None:
        """Mark ranks dead whose mesh has ended."""
        gone = [key for key in self._processes if key[0] not in meshes]
        for key in gone:
            del self._processes[key]
            row = self._rows.pop(key)  # moved to the end: the rows of the first ones to end are dropped first
            self._rows[key] = row if row.state == DEAD else _ended(row, now, "its mesh was stopped")
        ended = [key for key in self._rows if key not in self._processes]
        for key in ended[: max(0, len(ended) - _KEPT)]:
            del self._rows[key]

    def _row(self, key: Key, look: RankLook, mesh: MeshLook, coords: Mapping[str, int]) -> Row:
        process = self._processes.get(key)
        if process is None or (process.pid != look.pid and look.state != DEAD):
            process = self._processes[key] = _Process(look.pid)
        row = Row(
            look.mesh_id,
            mesh.name or look.mesh_id,
            look.rank,
            coords,
            look.host,
            look.pid or process.pid,
            look.incarnation,
            look.state,
            look.since,
            look.place,
            look.note,
            tuple(look.actors),
        )
        if row.state == DEAD:
            return row
        use, work = look.use, look.work
        row = replace(row, threads=use.threads, cpu=_percent(process, use), gpu=_gpu(work))
        if use.rss is not None:
            # Without shared memory: each shared page that it has read counts in its RSS too.
            growth = _growth(process, use.rss - (use.shmem or 0) + look.store)
            row = replace(row, rss=use.rss, swap=use.swap, store=look.store, growth=growth)
        return self._with_load(row, process, work)

    def _with_load(self, row: Row, process: _Process, work: WorkOfRank | None) -> Row:
        if work is None:
            process.misses += 1
            process.silent = process.silent if process.misses > 1 else self.time
            if process.misses >= _MISSES and row.state in (RUNNING, BLOCKED, IDLE):
                note = _SILENT.format(self.time - process.silent)
                return replace(row, state=NOT_ANSWERING, since=process.silent, note=note)
            return row
        process.misses = 0
        before, process.calls = process.calls, ({each.name: each.calls for each in work.actors}, work.told)
        seconds = work.told - before[1] if before is not None else 0.0
        known = before[0] if before is not None else {}
        actors = tuple(
            # An actor that was stopped and started again counts from 0; a new one has counted since it started.
            ActorLoad(
                each.name,
                each.endpoint,
                round(max(0, each.calls - known.get(each.name, 0)) / seconds, _DIGITS) if seconds > 0 else None,
                each.waiting,
                each.more,
            )
            for each in work.actors
        )
        if row.state == IDLE and any(each.endpoint for each in actors):
            row = replace(row, state=RUNNING, since=0.0)  # this is newer
        return replace(
            row,
            actors=actors,
            calls=round(sum(each.calls or 0.0 for each in actors), _DIGITS) if seconds > 0 else None,
            queue=sum(each.waiting for each in actors),
            more=any(each.more for each in actors),
        )


def _ended(row: Row, now: float, why: str) -> Row:
    """Return the row of a rank that has ended: its facts, without what it used."""
    return Row(
        row.mesh_id, row.mesh, row.rank, row.coords, row.host, row.pid, row.incarnation, DEAD, now, "", why, row.names
    )  # fmt: skip


def _percent(process: _Process, use: Use) -> float | None:
    if use.cpu is None or use.at is None:
        return None
    before, process.cpu = process.cpu, (use.cpu, use.at)
    if before is None or use.at <= before[1]:
        return None
    return round(100 * max(0.0, use.cpu - before[0]) / (use.at - before[1]), _DIGITS)


def _growth(process: _Process, weight: int) -> int | None:
    if not process.seen:
        process.seen = True  # the first look makes it load code for the answer: that is not growth of its own
        return None
    if process.weight is None:
        process.weight = weight
    return weight - process.weight


def _gpu(work: WorkOfRank | None) -> int | None:
    return sum(work.devices.values()) if work is not None and work.devices else None

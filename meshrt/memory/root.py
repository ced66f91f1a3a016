"""The root's side of the memory view: ranks and their variables as plain data. On the root's loop.

What is asked of whom::

    host agents   the processes' memory, from /proc: no rank has to answer
    ranks         what their allocators tell, and, if that is wanted, their variables

Whoever has rows of another kind adds a source to `View.sources`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshrt.errors import UsageError
from meshrt.hooks import Body, Group, Measured, RootServices
from meshrt.host.memory import resident, shares
from meshrt.inspect.asking import gather_all, why_silent
from meshrt.memory.merging import Merged
from meshrt.memory.references import held_of, references_of, stores_of, without_store
from meshrt.memory.units import bytes_of
from meshrt.selection import Shape
from meshrt.wire.messages import Address

__all__ = ["MILLISECONDS", "MOST_RANKS", "OBJECTS", "Asked", "RankState", "Source", "View", "load"]

#: How much memory each rank may have.
LIMIT_VARIABLE = "MESHRT_MEMORY_LIMIT"
#: What the variables of a rank may take, if nobody says otherwise; see `Asked`.
MILLISECONDS, OBJECTS = 200.0, 2_000_000
#: Rows of one answer: a control message holds 1 MiB.
MOST_RANKS = 4000
_BUDGET = 900_000
_PER_RANK = 170
#: Seconds in which a view without variables is complete, whatever ranks do.
_MEASURE_SECONDS = 0.8
_HEAP_SECONDS = 0.6
#: Seconds that all ranks together may take for their variables.
_VARIABLES_SECONDS = 60.0
_EXACT_SECONDS = 600.0
#: Ranks of a host that count at the same time.
_AT_ONCE = 16
#: Variables that all ranks together tell one by one, and one of them at least.
_ROWS = 20_000
_LEAST_ROWS = 20
_MOST_ROWS = 500

#: Columns of the ranks: they travel once.
COLUMNS = (
    "mesh_id", "mesh", "rank", "coords", "host", "node", "pid", "actors", "state", "note", "rss", "pss", "shared",
    "private", "anonymous", "file", "shmem", "swap", "peak", "store_own", "store_held", "blocks",
    "malloc_used", "malloc_free", "devices",
    "unique", "total", "exact", "variables_left_out",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankState:
    """What a rank does: a word of the grammar, and what else is known."""

    word: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be told.

    Attributes:
        targets: Base ranks, by mesh id.
        states: What is known of a rank that nobody has asked.
        actor: Variables of this actor only; "": of all.
        variables: Whether variables are told.
        frames: ... the local variables of stack frames that stand in the debugger among them.
        milliseconds: Of a processor, for the variables of one rank; None: as long as it takes.
        objects: Of one variable; None: all.
        references: Also what is in the store, with a name that begins so ("": all); None: not.
        chosen: Whether these ranks were chosen among others.
    """

    targets: Mapping[str, Sequence[int]]
    states: Callable[[str, int], RankState]
    actor: str = ""
    variables: bool = False
    frames: bool = False
    milliseconds: float | None = MILLISECONDS
    objects: int | None = OBJECTS
    references: str | None = None
    chosen: bool = False


#: Returns what it adds to the answer, by key.
Source = Callable[[Asked], Awaitable[Body]]


class View:
    """Asks, and puts together."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        #: Asked at once; further ones are called with the same.
        self.sources: list[Source] = [self._ranks]

    async def collect(self, asked: Asked) -> Body:
        """Return everything, as docs/json.md says it.

        Raises:
            UsageError: More than `MOST_RANKS` ranks.
        """
        count = sum(map(len, asked.targets.values()))
        if count > MOST_RANKS:
            raise UsageError(f"{count} ranks are too many for one answer; choose up to {MOST_RANKS} with ranks(...)")
        answer: Body = {"time": time.time_ns() / 1e9, "run_id": self._services.run_id}
        for part in await asyncio.gather(*(source(asked) for source in self.sources)):
            answer.update(part)
        return answer

    async def _ranks(self, asked: Asked) -> Body:
        if asked.variables:  # one after the other: what the count takes from the processors, the measures would miss
            measured = await self._services.measure(asked.targets, _MEASURE_SECONDS, asked.references)
            groups = await self._ask_variables(asked)
        else:
            measured, groups = await asyncio.gather(
                self._services.measure(asked.targets, _MEASURE_SECONDS, asked.references), self._ask_heaps(asked)
            )
        merged, heaps, silent = Merged(), dict[tuple[str, int], Any](), dict[tuple[str, int], RankState]()
        for group in groups:
            for rank in group.ranks:
                if group.kind == "answered":
                    heaps[group.mesh_id, rank] = group.per.get(rank) or {}
                elif group.kind == "silent":
                    silent[group.mesh_id, rank] = RankState("not-answering", why_silent(group.same))
                elif group.kind == "refused":
                    known = asked.states(group.mesh_id, rank)
                    silent[group.mesh_id, rank] = RankState(known.word, str(group.same))
            if group.kind == "answered" and asked.variables:
                merged.add(group)
        held = held_of(measured)
        rows = []
        for mesh in self._services.meshes():
            shape = Shape.from_wire(mesh["shape"])
            actors = [actor["name"] for actor in mesh["actors"]]
            for rank in asked.targets.get(mesh["mesh_id"], ()):
                address = (mesh["mesh_id"], rank)
                facts = measured.ranks.get(address, {})
                host = mesh["host"][rank]
                state = asked.states(*address)
                if state.word != "dead" and rank not in mesh["gone"]:
                    state = silent.get(address, state)
                if host in measured.silent and not facts:
                    state = RankState("not-answering", "the agent of its host does not answer")
                heap = heaps.get(address, {})
                malloc = heap.get("malloc", {})
                said = merged.of_rank.get(address, {})
                row = {
                    "mesh_id": mesh["mesh_id"], "mesh": mesh["name"], "rank": rank,
                    "coords": dict(shape.coordinates(rank)),
                    "host": host, "node": measured.agents.get(host, {}).get("node", ""),
                    "pid": mesh["pid"].get(rank, 0), "actors": actors,
                    **facts, "state": state.word, "note": state.note,
                    **held.get(mesh["pid"].get(rank, 0), {}),
                    "blocks": heap.get("blocks"), "malloc_used": malloc.get("used"), "malloc_free": malloc.get("free"),
                    "devices": heap.get("devices"), "variables_left_out": said.get("left_out"), **said,
                }  # fmt: skip
                rows.append([row.get(name) for name in COLUMNS])
        budget = _BUDGET - _PER_RANK * len(rows)
        references = {} if asked.references is None else self._references(asked, measured, budget // 2)
        variables, left_out = merged.rows(budget // 2 if references else budget)
        more = {"variables": variables, "variables_left_out": left_out} if asked.variables else {}
        return {
            "columns": list(COLUMNS),
            "ranks": rows,
            "processes": [
                _script(),
                *({"kind": "agent", "host": h, **without_store(facts)} for h, facts in measured.agents.items()),
            ],
            **more,
            **references,
            "stores": stores_of(measured),
        }

    def _references(self, asked: Asked, measured: Measured, budget: int) -> Body:
        meshes = self._services.meshes()
        ranks = {pid: (mesh["name"], rank) for mesh in meshes for rank, pid in mesh["pid"].items()}
        of_mesh = {mesh["mesh_id"]: mesh["pid"] for mesh in meshes}
        chosen = {of_mesh[mesh_id].get(rank) for mesh_id, found in asked.targets.items() for rank in found}
        return references_of(measured, ranks, chosen - {None} if asked.chosen else None, budget)

    async def _ask_heaps(self, asked: Asked) -> list[Group]:
        targets = _by_mesh(_answering(asked))
        return await gather_all(self._services, targets, "memory.heap", {}, _HEAP_SECONDS, stack_suffices=True)

    async def _ask_variables(self, asked: Asked) -> list[Group]:
        """Ask a few ranks of each host at a time: were all of them at work at once, some would seem to be silent."""
        hosts: dict[str, list[Address]] = {}
        of_mesh = {mesh["mesh_id"]: mesh["host"] for mesh in self._services.meshes()}
        for mesh_id, rank in _answering(asked):
            hosts.setdefault(of_mesh[mesh_id][rank], []).append((mesh_id, rank))
        body = {
            "actor": asked.actor,
            "frames": asked.frames,
            "milliseconds": asked.milliseconds,
            "objects": asked.objects,
            "most": min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS // max(1, sum(map(len, hosts.values()))))),
        }
        seconds = _EXACT_SECONDS if asked.milliseconds is None else _VARIABLES_SECONDS
        end = asyncio.get_running_loop().time() + seconds
        groups: list[Group] = []
        while any(hosts.values()):
            wave = _by_mesh([address for ranks in hosts.values() for address in ranks[:_AT_ONCE]])
            left = end - asyncio.get_running_loop().time()
            if left > 0:
                groups += await gather_all(self._services, wave, "memory.variables", body, left, stack_suffices=True)
            else:
                why = f"was not asked: the others took {seconds:g} s"
                groups += [Group(mesh_id, tuple(ranks), "refused", why, {}) for mesh_id, ranks in wave.items()]
            hosts = {host: ranks[_AT_ONCE:] for host, ranks in hosts.items()}
        return groups


def _answering(asked: Asked) -> list[Address]:
    """Return the ranks of which nothing is known that would keep them from answering."""
    return [
        (mesh_id, rank)
        for mesh_id, ranks in asked.targets.items()
        for rank in ranks
        if asked.states(mesh_id, rank).word not in ("dead", "not-answering")
    ]


def _by_mesh(addresses: Sequence[Address]) -> dict[str, list[int]]:
    targets: dict[str, list[int]] = {}
    for mesh_id, rank in addresses:
        targets.setdefault(mesh_id, []).append(rank)
    return targets


def _script() -> Body:
    pid = os.getpid()
    return {"kind": "script", "host": "", "node": socket.gethostname(), "pid": pid, **resident(pid), **shares(pid)}


def load(services: RootServices) -> None:
    """Offer the view to other plug-ins, and tell ranks their limit: called once, by the first that needs it.

    Raises:
        UsageError: The limit is no size.
    """
    limit = os.environ.get(LIMIT_VARIABLE, "")
    if limit:
        try:
            count = bytes_of(limit)
        except UsageError as error:
            raise UsageError(f"{LIMIT_VARIABLE}: {error}") from None
        services.at_birth.append(lambda: [("memory.limit", {"bytes": count})])
    services.tables["memory.view"] = View(services)

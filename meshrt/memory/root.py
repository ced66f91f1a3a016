"""The root's side of the memory view: ranks and their variables as plain data. On the root's loop.

``memory.look`` {`meshrt.memory.asked`}: returns the memory of ranks.

Where the facts come from::

    host agents   the processes' memory, from /proc: no rank has to answer
    ranks         what their allocators tell, and, if requested, their variables

A plug-in with rows of another kind adds a source to `View.sources`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Container
from dataclasses import replace
from typing import Any

from meshrt.errors import UsageError
from meshrt.hooks.facts import Body, Group, Measured
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.host.memory import machine, resident, shares
from meshrt.inspect.asking import gather_all, why_silent
from meshrt.inspect.packing import packed
from meshrt.memory.asked import Asked, asked_of
from meshrt.memory.merging import Merged
from meshrt.memory.references import held_of, holding_of, references_of, stores_of, without_store
from meshrt.memory.script import SCRIPT_ADDRESS, script_holding, script_name, script_sizes
from meshrt.memory.units import bytes_of
from meshrt.program.groups import by_mesh
from meshrt.program.program import program_of
from meshrt.program.states import State
from meshrt.program.words import DEAD, NOT_ANSWERING, RUNNING, STARTING
from meshrt.wire.control import Address

__all__ = ["Source", "View", "load"]

#: Environment variable with the memory limit of each rank.
LIMIT_VARIABLE = "MESHRT_MEMORY_LIMIT"
#: Bytes of one answer: a control message holds 1 MiB.
_BUDGET = 900_000
_PER_RANK = 170
#: Seconds after which a view without variables is complete, also if ranks do not answer.
_MEASURE_SECONDS = 0.8
_HEAP_SECONDS = 0.6
#: ... a view with variables: agents ask the ranks, and the ranks of an agent that is silent for so long are left out.
_SILENT_SECONDS = 3.0
#: Seconds that all ranks together may take for their variables.
_VARIABLES_SECONDS = 60.0
_EXACT_SECONDS = 600.0
#: Ranks of a host that count their variables at the same time.
_AT_ONCE = 16
#: Rows of variables that all ranks together return; each rank returns at least one.
_ROWS = 20_000
_LEAST_ROWS = 20
_MOST_ROWS = 500

#: Columns of the rows of ranks: sent once, not in each row.
COLUMNS = (
    "mesh_id", "mesh", "rank", "coords", "host", "node", "address", "pid", "actors", "state", "note", "rss", "pss",
    "shared", "private", "anonymous", "file", "shmem", "swap", "peak", "store_own", "store_held", "store_pinned",
    "blocks", "malloc_used", "malloc_free", "devices",
    "unique", "mapped", "total", "exact", "counted", "variables_left_out",
)  # fmt: skip


#: Facts of a host that its agent tells.
_OF_HOST = ("node", "address")


#: Returns keys and values to add to the answer.
Source = Callable[[Asked], Awaitable[Body]]


class View:
    """Asks ranks and agents, and puts their answers together. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        #: Sources, asked concurrently; plug-ins append theirs.
        self.sources: list[Source] = [self._ranks]

    async def look(self, client: ToolClient, body: Body) -> Body:
        """Serve ``memory.look``.

        Raises:
            UsageError: There is no such actor or variable, or a limit is not valid.
            SelectionError: No such ranks.
        """
        return await self.collect(asked_of(program_of(self._services).targets, body))

    async def collect(self, asked: Asked) -> Body:
        """Return the whole answer, as docs/json.md says."""
        answer: Body = {"time": time.time_ns() / 1e9, "run_id": self._services.run_id, "script": script_name()}
        for part in await asyncio.gather(*(source(asked) for source in self.sources)):
            answer.update(part)
        return answer

    async def _ranks(self, asked: Asked) -> Body:
        if asked.variables:  # one after the other: the count takes processor time that would delay the measures
            measured = await self._measure(asked, _SILENT_SECONDS)
            script, groups = await asyncio.gather(self._ask_script(asked), self._ask_variables(asked, measured))
        else:
            script = []
            seconds = _SILENT_SECONDS if asked.references else _MEASURE_SECONDS
            measured, groups = await asyncio.gather(self._measure(asked, seconds), self._ask_heaps(asked))
        merged, heaps, silent = Merged(), dict[tuple[str, int], Any](), dict[tuple[str, int], State]()
        unknown = ""
        for group in script:
            if "unknown" in group.same:
                unknown = str(group.same["unknown"])
            else:
                merged.add(group)
        for group in groups:
            for rank in group.ranks:
                if group.kind == "answered":
                    heaps[group.mesh_id, rank] = group.per.get(rank) or {}
                elif group.kind == "silent":
                    silent[group.mesh_id, rank] = State(NOT_ANSWERING, note=why_silent(group.same))
                elif group.kind == "refused":
                    known = asked.whom.doing(group.mesh_id, rank)
                    silent[group.mesh_id, rank] = replace(known, note=str(group.same))
            if group.kind == "answered" and "unknown" in (group.same or {}):
                unknown = str(group.same["unknown"])
                for rank in group.ranks:
                    known = asked.whom.doing(group.mesh_id, rank)
                    silent[group.mesh_id, rank] = replace(known, note=f"it has no {asked.opened}")
            elif group.kind == "answered" and asked.variables:
                merged.add(group)
        if unknown and not merged.of_rank:
            raise UsageError(unknown)
        held = held_of(measured)
        rows = []
        for mesh in self._services.meshes():
            for rank in asked.whom.targets.get(mesh.mesh_id, ()):
                address = (mesh.mesh_id, rank)
                facts = measured.ranks.get(address, {})
                host = mesh.hosts[rank]
                doing = asked.whom.doing(*address)
                if doing.word != DEAD and rank not in mesh.ended:
                    doing = silent.get(address, doing).measured(facts, host, measured)
                pid = mesh.pids.get(rank, 0)
                if not pid and doing.word == RUNNING:
                    doing = State(STARTING)
                heap = heaps.get(address, {})
                malloc = heap.get("malloc", {})
                said = merged.of_rank.get(address, {})
                rows.append({
                    "mesh_id": mesh.mesh_id, "mesh": mesh.name, "rank": rank,
                    "coords": dict(mesh.shape.coordinates(rank)),
                    "host": host, **{name: measured.agents.get(host, {}).get(name, "") for name in _OF_HOST},
                    "pid": pid, "actors": list(mesh.actors),
                    **facts, "state": doing.word, "note": _note(doing),
                    **held.get(pid, {}),
                    "blocks": heap.get("blocks"), "malloc_used": malloc.get("used"), "malloc_free": malloc.get("free"),
                    "devices": heap.get("devices"), "counted": heap.get("counted"),
                    "variables_left_out": said.get("left_out"), **said,
                })  # fmt: skip
        budget = _BUDGET - _PER_RANK * len(rows)
        references = {} if asked.references is None else self._references(asked, measured, budget // 2)
        if asked.references:
            references.update(await self._holding(asked, measured, references))
        variables, left_out = merged.rows(budget // 2 if references else budget)
        more: Body = {"chosen": True} if asked.chosen else {}
        if asked.variables:
            more.update(variables=variables, variables_left_out=left_out)
        if asked.opened:
            more["opened"] = asked.opened
        return {
            **packed(rows, COLUMNS),
            "processes": [
                _script(merged.of_rank.get(SCRIPT_ADDRESS)),
                *({"kind": "agent", "host": h, **without_store(facts)} for h, facts in measured.agents.items()),
            ],
            **more,
            **references,
            "stores": stores_of(measured),
        }

    def _references(self, asked: Asked, measured: Measured, budget: int) -> Body:
        meshes = self._services.meshes()
        ranks = {pid: (mesh.name, rank) for mesh in meshes for rank, pid in mesh.pids.items()}
        of_mesh = {mesh.mesh_id: mesh.pids for mesh in meshes}
        chosen = {
            of_mesh[mesh_id][rank]
            for mesh_id, found in asked.whom.targets.items()
            for rank in found
            if rank in of_mesh.get(mesh_id, {})
        }
        return references_of(measured, ranks, chosen if asked.chosen else None, budget)

    async def _measure(self, asked: Asked, seconds: float) -> Measured:
        return await self._services.measure(asked.whom.targets, seconds, asked.references)

    async def _holding(self, asked: Asked, measured: Measured, references: Body) -> Body:
        """Ask the ranks that hold a reference for the variable that holds it."""
        ranks = {pid: (mesh.mesh_id, rank) for mesh in self._services.meshes() for rank, pid in mesh.pids.items()}
        holders = {ranks[pid] for pid in map(int, references["holders"]) if pid in ranks}
        body = {**_limits(asked), "name": asked.references}
        groups = await self._in_waves(asked, "memory.holding", body, measured, holders)
        if not asked.chosen and any(
            pid == os.getpid() for row in references["references"] for pid, _ in row["holders"]
        ):
            groups.append(await _beside(script_holding, body))
        return holding_of(groups)

    async def _ask_heaps(self, asked: Asked) -> list[Group]:
        answering = asked.whom.answering()
        return await gather_all(self._services, answering, "memory.heap", {}, _HEAP_SECONDS, stack_suffices=True)

    async def _ask_variables(self, asked: Asked, measured: Measured) -> list[Group]:
        return await self._in_waves(asked, "memory.variables", _of_variables(asked), measured, None)

    async def _ask_script(self, asked: Asked) -> list[Group]:
        """Measure the variables of the script itself, if the request chooses no ranks."""
        return [] if asked.chosen else [await _beside(script_sizes, _of_variables(asked))]

    async def _in_waves(
        self, asked: Asked, operation: str, body: Body, measured: Measured, chosen: Container[Address] | None
    ) -> list[Group]:
        """Ask a few ranks of each host at a time: if all of them worked at once, some would seem to be silent.

        Args:
            measured: Hosts that have not answered here are not asked.
            chosen: Ranks to ask. None: all.
        """
        hosts: dict[str, list[Address]] = {}
        of_mesh = {mesh.mesh_id: mesh.hosts for mesh in self._services.meshes()}
        for mesh_id, ranks in asked.whom.answering().items():
            for rank in ranks if mesh_id in of_mesh else ():  # the mesh may have ended meanwhile
                if chosen is None or (mesh_id, rank) in chosen:
                    hosts.setdefault(of_mesh[mesh_id][rank], []).append((mesh_id, rank))
        seconds = _EXACT_SECONDS if asked.milliseconds is None else _VARIABLES_SECONDS
        end = asyncio.get_running_loop().time() + seconds
        unheard = [hosts.pop(host) for host in measured.silent if host in hosts and host not in measured.agents]
        silent = by_mesh([address for members in unheard for address in members])
        groups = [Group(mesh_id, tuple(ranks), "silent", {"state": "host"}, {}) for mesh_id, ranks in silent.items()]
        while any(hosts.values()):
            wave = by_mesh([address for members in hosts.values() for address in members[:_AT_ONCE]])
            left = end - asyncio.get_running_loop().time()
            if left > 0:
                groups += await gather_all(self._services, wave, operation, body, left, stack_suffices=True)
            else:
                why = f"was not asked: the others took {seconds:g} s"
                groups += [Group(mesh_id, tuple(ranks), "refused", why, {}) for mesh_id, ranks in wave.items()]
            hosts = {host: members[_AT_ONCE:] for host, members in hosts.items()}
        return groups


def _of_variables(asked: Asked) -> Body:
    count = max(1, sum(map(len, asked.whom.answering().values())))
    most = min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS // count))
    return {**_limits(asked), "frames": asked.frames, "most": most, "opened": asked.opened}


async def _beside(measure: Callable[[Body], Group], body: Body) -> Group:
    """Measure the script on a separate thread, so that the loop is not blocked."""
    return await asyncio.get_running_loop().run_in_executor(None, measure, body)


def _limits(asked: Asked) -> Body:
    return {"actor": asked.actor, "milliseconds": asked.milliseconds, "objects": asked.objects}


def _note(doing: State) -> str:
    """Return what is known of a rank beside its state; the place where it is stopped, if it is."""
    return doing.note or (f"at {doing.where}" if doing.where and doing.word != RUNNING else "")


def _script(said: Body | None) -> Body:
    """Return the row of the script's process; ``said``: the answer about its variables."""
    pid = os.getpid()
    told = {} if said is None else {"variables_left_out": said["left_out"], **said}
    told.pop("left_out", None)
    return {"kind": "script", "host": "", **machine(), "pid": pid, **resident(pid), **shares(pid), **told}


def load(services: RootServices) -> None:
    """Serve ``memory.look``, and tell ranks their limit: called once, by the first request.

    Raises:
        UsageError: The limit is not a valid size.
    """
    limit = os.environ.get(LIMIT_VARIABLE, "")
    if limit:
        try:
            count = bytes_of(limit)
        except UsageError as error:
            raise UsageError(f"{LIMIT_VARIABLE}: {error}") from None
        services.at_birth.append(lambda: [("memory.limit", {"bytes": count})])
    view = services.tables["memory.view"] = View(services)
    services.tool_operations["memory.look"] = view.look

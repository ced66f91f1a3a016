"""The root's side of the memory view: ranks and their variables. On the root's loop.

Where the facts come from::

    host agents   the processes' memory, from /proc: no rank has to answer
    ranks         what their allocators tell, and, if requested, their variables
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Container
from dataclasses import replace
from typing import TypeVar

import msgspec

from meshrt.errors import UsageError
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.measured import Measured
from meshrt.hooks.operations import GroupedOperation
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.hooks.snapshot import MeshFacts
from meshrt.host.memory import machine, resident, shares
from meshrt.inspect.asking import gather_all
from meshrt.memory.asked import Asked, asked_of
from meshrt.memory.merging import Merged
from meshrt.memory.operations import (
    FindHolders,
    Heap,
    Holders,
    LookAtMemory,
    LookedAtRanks,
    MeasureVariables,
    ProcessRow,
    ReadHeap,
    SetLimit,
    Variables,
    WireRank,
    sums_of,
)
from meshrt.memory.references import Held, References, held_of, holding_of, references_of, stores_of
from meshrt.memory.script import SCRIPT_ADDRESS, script_holding, script_name, script_sizes
from meshrt.memory.units import bytes_of
from meshrt.program.groups import by_mesh
from meshrt.program.program import program_of
from meshrt.program.states import State
from meshrt.program.words import DEAD, NOT_ANSWERING, RUNNING, STARTING, silence
from meshrt.wire.control import Address

__all__ = ["View", "load"]

S = TypeVar("S")
P = TypeVar("P")

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


class View:
    """Asks ranks and agents, and puts their answers together. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services

    async def look(self, _client: ToolClient, look: LookAtMemory) -> LookedAtRanks:
        """Serve a look.

        Raises:
            UsageError: There is no such actor or variable, or a limit is not valid.
            SelectionError: No such ranks.
        """
        return await self.collect(asked_of(program_of(self._services).targets, look))

    async def collect(self, asked: Asked) -> LookedAtRanks:
        """Return the whole answer."""
        now = time.time_ns() / 1e9
        found = _Found(asked)
        if asked.variables:  # one after the other: the count takes processor time that would delay the measures
            found.measured = await self._measure(asked, _SILENT_SECONDS)
            script, groups = await asyncio.gather(self._ask_script(asked), self._ask_variables(asked, found.measured))
            for group in (*script, *groups):
                found.add_variables(group)
            if found.unknown and not found.merged.of_rank:
                raise UsageError(found.unknown)
        else:
            seconds = _SILENT_SECONDS if asked.references else _MEASURE_SECONDS
            found.measured, heaps = await asyncio.gather(self._measure(asked, seconds), self._ask_heaps(asked))
            for heap in heaps:
                found.add_heaps(heap)
        held = held_of(found.measured)
        rows = [
            found.row(mesh, rank, held.get(mesh.pids.get(rank, 0), Held()))
            for mesh in self._services.meshes()
            for rank in asked.whom.targets.get(mesh.mesh_id, ())
        ]
        budget = _BUDGET - _PER_RANK * len(rows)
        variables, left_out = found.merged.rows(budget if asked.references is None else budget // 2)
        answer = LookedAtRanks(
            time=now,
            run_id=self._services.run_id,
            script=script_name(),
            chosen=asked.chosen or None,
            opened=asked.opened or None,
            ranks=rows,
            processes=[_script(found.merged.of_rank.get(SCRIPT_ADDRESS)), *_agents(found.measured)],
            variables=variables if asked.variables else None,
            variables_left_out=left_out if asked.variables else None,
            stores=stores_of(found.measured),
        )
        if asked.references is None:
            return answer
        return await self._with_references(answer, asked, found.measured, budget // 2)

    async def _with_references(
        self, answer: LookedAtRanks, asked: Asked, measured: Measured, budget: int
    ) -> LookedAtRanks:
        references = self._references(asked, measured, budget)
        answer = msgspec.structs.replace(
            answer,
            references=references.rows,
            references_left_out=references.left_out,
            holders={str(pid): who for pid, who in references.holders.items()},
        )
        if not asked.references:
            return answer
        holding, exact = holding_of(await self._holding(asked, asked.references, measured, references))
        return msgspec.structs.replace(answer, holding=holding, holding_exact=exact)

    def _references(self, asked: Asked, measured: Measured, budget: int) -> References:
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

    async def _holding(
        self, asked: Asked, name: str, measured: Measured, references: References
    ) -> list[Answered[Holders, None] | Unanswered]:
        """Ask the ranks that hold a reference for the variable that holds it."""
        ranks = {pid: (mesh.mesh_id, rank) for mesh in self._services.meshes() for rank, pid in mesh.pids.items()}
        holders = {ranks[pid] for pid in references.holders if pid in ranks}
        find = FindHolders(actor=asked.actor, milliseconds=asked.milliseconds, objects=asked.objects, begins=name)
        groups = await self._in_waves(asked, find, measured, holders)
        if not asked.chosen and any(pid == os.getpid() for row in references.rows for pid, _ in row.holders):
            groups.append(await asyncio.to_thread(script_holding, find))
        return groups

    async def _ask_heaps(self, asked: Asked) -> list[Answered[None, Heap] | Unanswered]:
        answering = asked.whom.answering()
        return await gather_all(self._services, answering, ReadHeap(), _HEAP_SECONDS, stack_suffices=True)

    async def _ask_variables(self, asked: Asked, measured: Measured) -> list[Answered[Variables, Heap] | Unanswered]:
        return await self._in_waves(asked, _of_variables(asked), measured, None)

    async def _ask_script(self, asked: Asked) -> list[Answered[Variables, Heap]]:
        """Measure the variables of the script itself, if the request chooses no ranks."""
        return [] if asked.chosen else [await asyncio.to_thread(script_sizes, _of_variables(asked))]

    async def _in_waves(
        self,
        asked: Asked,
        operation: GroupedOperation[S, P],
        measured: Measured,
        chosen: Container[Address] | None,
    ) -> list[Answered[S, P] | Unanswered]:
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
        groups: list[Answered[S, P] | Unanswered] = [
            Unanswered(mesh_id, tuple(ranks), "silent", "", "host") for mesh_id, ranks in silent.items()
        ]
        while any(hosts.values()):
            wave = by_mesh([address for members in hosts.values() for address in members[:_AT_ONCE]])
            left = end - asyncio.get_running_loop().time()
            if left > 0:
                groups += await gather_all(self._services, wave, operation, left, stack_suffices=True)
            else:
                why = f"was not asked: the others took {seconds:g} s"
                groups += [Unanswered(mesh_id, tuple(ranks), "refused", why) for mesh_id, ranks in wave.items()]
            hosts = {host: members[_AT_ONCE:] for host, members in hosts.items()}
        return groups


class _Found:
    """What agents and ranks have told."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.measured = Measured()
        self.merged = Merged()
        #: Why no variable is opened.
        self.unknown = ""
        self._heaps: dict[Address, Heap] = {}
        #: The states of ranks that have not answered.
        self._silent: dict[Address, State] = {}

    def add_heaps(self, group: Answered[S, Heap] | Unanswered) -> None:
        """Add what the allocators of ranks tell, or why they do not."""
        if isinstance(group, Answered):
            self._heaps.update(((group.mesh_id, rank), heap) for rank, heap in group.per.items())
        elif group.kind != "gone":
            for rank in group.ranks:
                known = self._asked.whom.doing(group.mesh_id, rank)
                silent = State(NOT_ANSWERING, note=silence(group.state))
                self._silent[group.mesh_id, rank] = silent if group.kind == "silent" else replace(known, note=group.why)

    def add_variables(self, group: Answered[Variables, Heap] | Unanswered) -> None:
        """Add variables of ranks, or of the script."""
        self.add_heaps(group)
        if not isinstance(group, Answered):
            return
        if not group.same.unknown:
            self.merged.add(group)
            return
        self.unknown = group.same.unknown
        if group.mesh_id:
            for rank in group.ranks:
                known = self._asked.whom.doing(group.mesh_id, rank)
                self._silent[group.mesh_id, rank] = replace(known, note=f"it has no {self._asked.opened}")

    def row(self, mesh: MeshFacts, rank: int, held: Held) -> WireRank:
        """Return the row of a rank."""
        address, host, pid = (mesh.mesh_id, rank), mesh.hosts[rank], mesh.pids.get(rank, 0)
        facts, agent = self.measured.ranks.get(address), self.measured.agents.get(host)
        doing = self._asked.whom.doing(*address)
        if doing.word != DEAD and rank not in mesh.ended:
            doing = self._silent.get(address, doing).measured(facts, host, self.measured)
        if not pid and doing.word == RUNNING:
            doing = State(STARTING)
        heap, said = self._heaps.get(address), self.merged.of_rank.get(address)
        in_store = held != Held()
        return WireRank(
            mesh_id=mesh.mesh_id,
            mesh=mesh.name,
            rank=rank,
            coords=dict(mesh.shape.coordinates(rank)),
            host=host,
            node="" if agent is None else agent.node,
            address="" if agent is None else agent.address,
            pid=pid,
            actors=list(mesh.actors),
            state=doing.word,
            note=_note(doing),
            store_own=held.own if in_store else None,
            store_held=held.held if in_store else None,
            store_pinned=held.pinned if in_store else None,
            blocks=None if heap is None else heap.blocks,
            malloc_used=None if heap is None else heap.malloc_used,
            malloc_free=None if heap is None else heap.malloc_free,
            devices=None if heap is None else heap.devices,
            counted=None if heap is None else heap.counted,
            **sums_of(said),
            **(facts.known() if facts is not None else {}),
        )


def _of_variables(asked: Asked) -> MeasureVariables:
    count = max(1, sum(map(len, asked.whom.answering().values())))
    return MeasureVariables(
        actor=asked.actor,
        milliseconds=asked.milliseconds,
        objects=asked.objects,
        frames=asked.frames,
        most=min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS // count)),
        opened=asked.opened,
    )


def _note(doing: State) -> str:
    """Return what is known of a rank beside its state; the place where it is stopped, if it is."""
    return doing.note or (f"at {doing.where}" if doing.where and doing.word != RUNNING else "")


def _script(said: Variables | None) -> ProcessRow:
    """Return the row of the script's process; ``said``: the answer about its variables."""
    pid = os.getpid()
    node, address = machine()
    facts = resident(pid).joined(shares(pid))
    return ProcessRow(kind="script", host="", node=node, address=address, pid=pid, **sums_of(said), **facts.known())


def _agents(measured: Measured) -> list[ProcessRow]:
    return [
        ProcessRow(kind="agent", host=host, **msgspec.structs.replace(facts, store=None).known())
        for host, facts in measured.agents.items()
    ]


def load(services: RootServices) -> None:
    """Serve looks, and tell ranks their limit: called once, by the first request.

    Raises:
        UsageError: The limit is not a valid size.
    """
    limit = os.environ.get(LIMIT_VARIABLE, "")
    if limit:
        try:
            count = bytes_of(limit)
        except UsageError as error:
            raise UsageError(f"{LIMIT_VARIABLE}: {error}") from None
        services.at_birth.append(lambda: [SetLimit(count)])
    services.serve_terminals(LookAtMemory, View(services).look)

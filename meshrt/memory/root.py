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
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from meshrt.errors import UsageError
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.measured import Measured
from meshrt.hooks.operations import GroupedOperation
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.hooks.snapshot import MeshFacts
from meshrt.host.memory import machine, resident, shares
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
)
from meshrt.memory.references import Held, References, held_of, holding_of, references_of, stores_of
from meshrt.memory.script import SCRIPT_ADDRESS, script_holding, script_name, script_sizes
from meshrt.memory.units import bytes_of
from meshrt.program.asking import gather_all
from meshrt.program.chosen import Chosen, choose
from meshrt.program.groups import by_mesh
from meshrt.program.program import program_of
from meshrt.program.states import State
from meshrt.program.words import DEAD, RUNNING
from meshrt.wire.control import Address

__all__ = ["Looking", "load"]

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
_OBJECTS = 2_000_000
#: Rows of variables that all ranks together return; each rank returns at least one.
_ROWS = 20_000
_LEAST_ROWS = 20
_MOST_ROWS = 500


class Looking:
    """One look: asks ranks and agents, and puts their answers together. On the root's loop.

    Args:
        asked: The request; ``actor`` is the bare name of an actor.
        whom: The ranks that it selects.
    """

    def __init__(self, services: RootServices, asked: LookAtMemory, whom: Chosen) -> None:
        self._services = services
        self._asked = asked
        self._whom = whom
        #: Whether the request selects some of the ranks.
        self._chosen = bool(asked.actor or asked.ranks)
        #: Objects of one variable; None: no limit.
        self._objects = None if asked.milliseconds is None else _OBJECTS
        self._measured = Measured()
        self._merged = Merged()
        #: Why no variable is opened.
        self._unknown = ""
        self._heaps: dict[Address, Heap] = {}
        #: The states of ranks that have not answered.
        self._silent: dict[Address, State] = {}

    async def collect(self) -> LookedAtRanks:
        """Return the whole answer. Raises UsageError: there is no such variable."""
        now = time.time_ns() / 1e9
        asked = self._asked
        if asked.variables:  # one after the other: the count takes processor time that would delay the measures
            self._measured = await self._measure(_SILENT_SECONDS)
            script, groups = await asyncio.gather(self._ask_script(), self._in_waves(self._of_variables(), None))
            for group in (*script, *groups):
                self._add_variables(group)
            if self._unknown and not self._merged.of_rank:
                raise UsageError(self._unknown)
        else:
            seconds = _SILENT_SECONDS if asked.references else _MEASURE_SECONDS
            self._measured, heaps = await asyncio.gather(self._measure(seconds), self._ask_heaps())
            for heap in heaps:
                self._add_heaps(heap)
        held = held_of(self._measured)
        rows = [
            self._row(mesh, rank, held.get(mesh.pids.get(rank, 0), Held()))
            for mesh in self._services.meshes()
            for rank in self._whom.targets.get(mesh.mesh_id, ())
        ]
        budget = _BUDGET - _PER_RANK * len(rows)
        variables, left_out = self._merged.rows(budget if asked.references is None else budget // 2)
        answer = LookedAtRanks(
            time=now,
            run_id=self._services.run_id,
            script=script_name(),
            chosen=self._chosen or None,
            opened=asked.opened or None,
            ranks=rows,
            processes=[_script(self._merged.of_rank.get(SCRIPT_ADDRESS)), *_agents(self._measured)],
            variables=variables if asked.variables else None,
            variables_left_out=left_out if asked.variables else None,
            stores=stores_of(self._measured),
        )
        return answer if asked.references is None else await self._with_references(answer, budget // 2)

    async def _with_references(self, answer: LookedAtRanks, budget: int) -> LookedAtRanks:
        meshes = self._services.meshes()
        ranks = {pid: (mesh.name, rank) for mesh in meshes for rank, pid in mesh.pids.items()}
        wanted = self._whom.targets
        chosen = {pid for mesh in meshes for rank, pid in mesh.pids.items() if rank in wanted.get(mesh.mesh_id, ())}
        references = references_of(self._measured, ranks, chosen if self._chosen else None, budget)
        answer = msgspec.structs.replace(
            answer,
            references=references.rows,
            references_left_out=references.left_out,
            holders={str(pid): who for pid, who in references.holders.items()},
        )
        if not self._asked.references:
            return answer
        holding, exact = holding_of(await self._ask_holders(references, self._asked.references))
        return msgspec.structs.replace(answer, holding=holding, holding_exact=exact)

    async def _measure(self, seconds: float) -> Measured:
        return await self._services.measure(self._whom.targets, seconds, self._asked.references)

    async def _ask_holders(self, references: References, name: str) -> list[Answered[Holders, None] | Unanswered]:
        """Ask the ranks that hold a reference for the variable that holds it."""
        asked, meshes = self._asked, self._services.meshes()
        holders = {
            (mesh.mesh_id, rank) for mesh in meshes for rank, pid in mesh.pids.items() if pid in references.holders
        }
        find = FindHolders(actor=asked.actor, milliseconds=asked.milliseconds, objects=self._objects, begins=name)
        groups = await self._in_waves(find, holders)
        if not self._chosen and any(pid == os.getpid() for row in references.rows for pid, _ in row.holders):
            groups.append(await asyncio.to_thread(script_holding, find))
        return groups

    async def _ask_heaps(self) -> list[Answered[None, Heap] | Unanswered]:
        answering = self._whom.answering()
        return await gather_all(self._services, answering, ReadHeap(), _HEAP_SECONDS, stack_suffices=True)

    async def _ask_script(self) -> list[Answered[Variables, Heap]]:
        """Measure the variables of the script itself, if the request chooses no ranks."""
        return [] if self._chosen else [await asyncio.to_thread(script_sizes, self._of_variables())]

    def _of_variables(self) -> MeasureVariables:
        asked, count = self._asked, max(1, sum(map(len, self._whom.answering().values())))
        return MeasureVariables(
            actor=asked.actor,
            milliseconds=asked.milliseconds,
            objects=self._objects,
            frames=asked.frames,
            most=min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS // count)),
            opened=asked.opened,
        )

    async def _in_waves(
        self, operation: GroupedOperation[S, P], chosen: Container[Address] | None
    ) -> list[Answered[S, P] | Unanswered]:
        """Ask a few ranks of each host at a time: if all of them worked at once, some would seem to be silent.

        Hosts that have not answered to `_measure` are not asked.

        Args:
            chosen: Ranks to ask. None: all.
        """
        hosts: dict[str, list[Address]] = {}
        of_mesh = {mesh.mesh_id: mesh.hosts for mesh in self._services.meshes()}
        for mesh_id, ranks in self._whom.answering().items():
            for rank in ranks if mesh_id in of_mesh else ():  # the mesh may have ended meanwhile
                if chosen is None or (mesh_id, rank) in chosen:
                    hosts.setdefault(of_mesh[mesh_id][rank], []).append((mesh_id, rank))
        seconds = _EXACT_SECONDS if self._asked.milliseconds is None else _VARIABLES_SECONDS
        end = asyncio.get_running_loop().time() + seconds
        measured = self._measured
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
                why = f"not measured: the other ranks used the time limit of {seconds:g} s"
                groups += [Unanswered(mesh_id, tuple(ranks), "refused", why) for mesh_id, ranks in wave.items()]
            hosts = {host: members[_AT_ONCE:] for host, members in hosts.items()}
        return groups

    def _add_heaps(self, group: Answered[S, Heap] | Unanswered) -> None:
        """Add what the allocators of ranks tell, or why they do not."""
        if isinstance(group, Answered):
            self._heaps.update(((group.mesh_id, rank), heap) for rank, heap in group.per.items())
        elif group.kind != "gone":
            for rank in group.ranks:
                self._silent[group.mesh_id, rank] = self._whom.doing(group.mesh_id, rank).unanswered(group)

    def _add_variables(self, group: Answered[Variables, Heap] | Unanswered) -> None:
        """Add variables of ranks, or of the script."""
        self._add_heaps(group)
        if not isinstance(group, Answered):
            return
        if not group.same.unknown:
            self._merged.add(group)
            return
        self._unknown = group.same.unknown
        if group.mesh_id:
            for rank in group.ranks:
                known = self._whom.doing(group.mesh_id, rank)
                self._silent[group.mesh_id, rank] = replace(known, note=f"{self._asked.opened} does not exist there")

    def _row(self, mesh: MeshFacts, rank: int, held: Held) -> WireRank:
        """Return the row of a rank."""
        address, host, pid = (mesh.mesh_id, rank), mesh.hosts[rank], mesh.pids.get(rank, 0)
        facts, agent = self._measured.ranks.get(address), self._measured.agents.get(host)
        doing = self._whom.doing(*address)
        if doing.word != DEAD and rank not in mesh.ended:
            doing = self._silent.get(address, doing).measured(facts, host, self._measured).of_process(pid)
        heap, said = self._heaps.get(address), self._merged.of_rank.get(address)
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
            actors=mesh.actors_of(rank),
            state=doing.word,
            note=_note(doing),
            store_own=held.own if in_store else None,
            store_held=held.held if in_store else None,
            store_pinned=held.pinned if in_store else None,
            **(msgspec.structs.asdict(heap) if heap is not None else {}),
            **(facts.known() if facts is not None else {}),
        ).with_sums(said)


def _note(doing: State) -> str:
    """Return what is known of a rank beside its state; the place where it is stopped, if it is."""
    return doing.note or (f"at {doing.where}" if doing.where and doing.word != RUNNING else "")


def _script(said: Variables | None) -> ProcessRow:
    """Return the row of the script's process; ``said``: the answer about its variables."""
    pid = os.getpid()
    node, address = machine()
    facts = resident(pid).joined(shares(pid))
    row = ProcessRow(kind="script", host="", node=node, address=address, pid=pid, **facts.known())
    return row.with_sums(said)


def _agents(measured: Measured) -> list[ProcessRow]:
    return [
        ProcessRow(kind="agent", host=host, **msgspec.structs.replace(facts, store=None).known())
        for host, facts in measured.agents.items()
    ]


def _check(asked: LookAtMemory) -> None:
    """Raise UsageError for a limit, or the beginning of a reference's name, that is not valid."""
    limit = asked.milliseconds
    if limit is not None and not 0 <= limit < float("inf"):
        raise UsageError(f"milliseconds is {limit:g}; expected a number, 0 or more, or null for no limit")
    if not set(asked.references or "") <= set("0123456789abcdef"):
        raise UsageError(
            f"{asked.references!r} is not the name of a reference; expected hexadecimal digits, as meshrt memory "
            "--refs shows them"
        )


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

    async def look(_client: ToolClient, asked: LookAtMemory) -> LookedAtRanks:
        _check(asked)
        targets = program_of(services).targets
        whom = choose(targets, asked.actor, asked.ranks)
        actor = targets.bare_name(asked.actor) if asked.actor else ""
        return await Looking(services, msgspec.structs.replace(asked, actor=actor), whom).collect()

    services.serve_terminals(LookAtMemory, look)

"""The root's side of ``top``: one look at ranks. On the root's loop.

Host agents read ``/proc`` of their ranks, so each rank has a row whatever it does. Ranks that are not known to be
silent also return the work of their actors. The look waits for them at most `_SECONDS`.
"""

from __future__ import annotations

import asyncio
import time

from msgspec.structs import replace

from meshrt.hooks.facts import Answered
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.hooks.snapshot import MeshFacts
from meshrt.memory.references import Held, held_of
from meshrt.program.asking import gather_all
from meshrt.program.chosen import choose
from meshrt.program.program import program_of
from meshrt.program.states import State, state_of
from meshrt.top.operations import Look, Looked, MeshLook, RankLook, Use, Work, WorkOfRank
from meshrt.wire.control import Address

__all__ = ["Looks", "load"]

#: Seconds for the answers of ranks, and more where many of them share few processors. Below 0.3 s no agent asks a
#: silent rank for its stacks: a look every second would make it write them every second.
_SECONDS = 0.28
_PER_RANK = 0.001
_FEW = 128
#: Seconds for host agents: they read 0.1 ms a rank, and may be busy.
_MEASURE_SECONDS = 0.8
#: Characters of a note.
_NOTE = 120

_USE = Use.__struct_fields__


class Looks:
    """Asks ranks and agents, and puts their answers together. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        #: How ranks ended that were started again since, by mesh and rank.
        self._ended: dict[Address, str] = {}

    def gone(self, mesh_id: str, rank: int, fate: Fate) -> None:
        """A rank has ended."""
        self._ended[mesh_id, rank] = str(fate)

    async def look(self, client: ToolClient, asked: Look) -> Looked:
        """Serve `Look`.

        Raises:
            UsageError: There is no such actor.
            SelectionError: No such ranks.
        """
        chosen = choose(program_of(self._services).targets, asked.actor, asked.ranks)
        seconds = _SECONDS + _PER_RANK * max(0, sum(map(len, chosen.targets.values())) - _FEW)
        measured, groups = await asyncio.gather(
            self._services.measure(chosen.targets, _MEASURE_SECONDS, work=True),
            gather_all(self._services, chosen.answering(), Work(), seconds),
        )
        told: dict[Address, WorkOfRank] = {}
        for group in groups:
            if isinstance(group, Answered):
                told.update({(group.mesh_id, rank): work for rank, work in group.per.items()})
        held = held_of(measured)
        rows, meshes = [], self._services.meshes()
        there = {mesh.mesh_id for mesh in meshes}
        self._ended = {address: how for address, how in self._ended.items() if address[0] in there}
        for mesh in meshes:
            for rank in chosen.targets.get(mesh.mesh_id, ()):
                address = (mesh.mesh_id, rank)
                facts, pid, host = measured.ranks.get(address), mesh.pids.get(rank, 0), mesh.hosts[rank]
                doing = self._doing(mesh, rank, chosen.doing(*address).measured(facts, host, measured))
                store = held.get(pid, Held())
                rows.append(
                    RankLook(
                        *address,
                        host=host,
                        pid=pid,
                        incarnation=mesh.incarnations.get(rank, 0),
                        actors=mesh.actors_of(rank),
                        state=doing.word,
                        since=doing.since,
                        place=doing.where,
                        note=doing.note[:_NOTE],
                        use=Use() if facts is None else Use(*(getattr(facts, name) for name in _USE)),
                        store=store.own + store.held,
                        work=told.get(address),
                    )
                )
        kept = [MeshLook(mesh.mesh_id, mesh.name, mesh.shape.to_wire()) for mesh in meshes]
        return Looked(time.time_ns() / 1e9, self._services.run_id, kept, rows)

    def _doing(self, mesh: MeshFacts, rank: int, known: State) -> State:
        """Return the state of a rank, with what is known of the time before it was started again."""
        if rank in mesh.ended:  # perhaps since the request
            return state_of(mesh, rank)
        before = self._ended.get((mesh.mesh_id, rank))
        if rank in mesh.incarnations and not known.note:
            times = mesh.incarnations[rank]
            note = f"restarted ({times})" + (f": it {before}" if before else "")
            return replace(known, note=note)
        return known


def load(services: RootServices) -> None:
    """Serve looks: called once, by the first request."""
    looks = Looks(services)
    services.serve_terminals(Look, looks.look)
    services.rank_gone.append(looks.gone)

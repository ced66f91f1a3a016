"""Root side: requests of terminals about ranks that are stopped or run. On the root's loop."""

from __future__ import annotations

import sys
import threading

from msgspec.structs import replace

from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.listing import rows_of, status_of, with_memory
from meshrt.inspect.merged import MergedStacks
from meshrt.inspect.operations import (
    FindOutput,
    KnownNames,
    Listing,
    ListRanks,
    Names,
    Output,
    Outputs,
    ProgramStatus,
    ReadStatus,
    Where,
)
from meshrt.inspect.records import ReadStacks, Record, StackFrame
from meshrt.inspect.tree import Stacks
from meshrt.inspect.visibility import own_line
from meshrt.program.asking import gather_all
from meshrt.program.groups import rank_sets
from meshrt.program.program import program_of
from meshrt.program.states import PostMortem
from meshrt.program.targets import Targets, mesh_name
from meshrt.program.words import DEAD, STOPPED

__all__ = ["Looking"]

_STACK_SECONDS = 1.0
_MEASURE_SECONDS = 0.5
#: Stopped ranks of one actor that are named for completion, at most.
_MOST_NAMED = 200


class Looking:
    """The operations of inspection that terminals call."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._program = program_of(services)

    def serve(self) -> None:
        """Register the operations with the runtime."""
        self._services.serve_terminals(ListRanks, self._list)
        self._services.serve_terminals(ReadStatus, self._status)
        self._services.serve_terminals(Where, self._where)
        self._services.serve_terminals(FindOutput, self._printing)
        self._services.serve_terminals(Names, self._names)

    async def _targets(self, *, hosts: bool) -> Targets:
        return await self._program.looked() if hosts else self._program.targets

    async def _list(self, client: ToolClient, asked: ListRanks) -> Listing:
        targets = await self._targets(hosts=asked.hosts)
        listed = rows_of(targets, asked.state or STOPPED, asked.actor, asked.ranks)
        if not asked.memory:
            return listed
        asked_for = rank_sets((row.mesh, row.rank) for row in listed.rows if row.state != DEAD)
        measured = await self._services.measure(asked_for, _MEASURE_SECONDS, work=True, children=True)
        return replace(listed, rows=with_memory(listed.rows, measured))

    async def _status(self, client: ToolClient, asked: ReadStatus) -> ProgramStatus:
        return status_of(await self._targets(hosts=asked.hosts), self._services, own=client.pid)

    async def _where(self, client: ToolClient, asked: Where) -> MergedStacks:
        """Return the merged stacks of ranks: of an actor, of a selection, or of all ranks."""
        actor, ranks, verbose = asked.actor, asked.ranks, asked.verbose
        known = self._program.targets
        named = known.actor(actor, any_thread=True) if "/" in actor else None
        thread = named.thread if named is not None else ""
        activity = self._program.sources.activity
        stacks = Stacks(verbose=verbose, thread=thread, actors=activity.actors, waits=activity.waits())
        targets = known.by_mesh(actor, ranks)
        alive: dict[str, list[int]] = {}
        for mesh in known.meshes():
            wanted = targets.get(mesh.mesh_id)
            if wanted:
                stacks.expect(mesh.mesh_id, mesh.name, mesh.shape, wanted)
                alive[mesh.mesh_id] = sorted({*wanted} & {*mesh.alive})
                for rank in sorted({*wanted} & {*mesh.ended}):
                    stacks.gone(mesh.mesh_id, rank, str(mesh.ended[rank]))
        name = known.bare_name(actor) if actor and not thread else ""
        # For an actor that is stopped after an exception, the stack of the exception replaces that of its thread.
        for post_mortem in self._program.sources.stops.post_mortems():
            stacks.instead(post_mortem.mesh_id, post_mortem.rank, _record(post_mortem))
        asked_for = {mesh_id: members for mesh_id, members in alive.items() if members}
        operation = ReadStacks(name, verbose)
        for group in await gather_all(self._services, asked_for, operation, _STACK_SECONDS, stack_suffices=True):
            stacks.add(group)
        stacks.waits.script(self._services.script_waits())
        stacks.unread = tuple(self._services.unread.values())
        found = stacks.answer()
        joined = any(mesh.joined for mesh in known.meshes())  # then this process runs no script
        return replace(found, script="" if joined or not stacks.is_idle() else _script_line())

    async def _printing(self, client: ToolClient, asked: FindOutput) -> Outputs:
        """Return the meshes and ranks with output: of an actor, of a selection, or of every mesh; each mesh once."""
        targets = self._program.targets
        meshes = targets.meshes()
        found = targets.by_mesh(asked.actor, asked.ranks, any_thread=False)
        label = targets.actor(asked.actor).label if asked.actor else ""
        return Outputs(
            [
                Output(label or mesh_name(mesh, meshes), mesh.mesh_id, mesh.name, found[mesh.mesh_id], mesh.joined)
                for mesh in meshes
                if mesh.mesh_id in found
            ]
        )

    async def _names(self, client: ToolClient, asked: Names) -> KnownNames:
        targets = self._program.targets
        stopped: dict[str, list[int]] = {}
        dims: dict[str, None] = {}
        for actor in targets.actors():
            stops = targets.stops(actor)
            stopped[actor.label] = sorted(rank for rank, stop in stops.items() if stop.state is not None)[:_MOST_NAMED]
            views = (actor.mesh.shape, *actor.views.values(), *(stop.view for stop in stops.values()))
            dims.update(dict.fromkeys(label for view in dict.fromkeys(views) if view for label in view.labels))
        return KnownNames(sorted(stopped), list(dims), stopped)


def _script_line() -> str:
    """Return where the main thread of the script is, which is a thread of this process."""
    return own_line(sys._current_frames().get(threading.main_thread().ident or 0))


def _record(post_mortem: PostMortem) -> Record:
    """Return the record of an actor with the stack frames of the exception."""
    frames = [StackFrame(place.file, place.line, place.function) for place in post_mortem.stack]
    return Record(
        "",
        "actor",
        post_mortem.actor,
        post_mortem.endpoint,
        STOPPED,
        frames,
        holder=f"post-mortem: {post_mortem.headline}",
    )

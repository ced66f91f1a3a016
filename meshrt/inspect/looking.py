"""Root side: requests of terminals about ranks that are stopped or run. On the root's loop.

* ``inspect.list`` {state, actor, ranks, memory, hosts}: a row for each rank in a state.
* ``inspect.status`` {hosts}: a summary of all states.
* ``inspect.where`` {actor, ranks, verbose}: the merged stacks of ranks, which are asked.
* ``inspect.printing`` {actor, ranks}: the meshes and ranks that have output.

All fields are optional. With ``hosts``, the agents of hosts are asked first whether they answer.
"""

from __future__ import annotations

import asyncio
from functools import partial

from meshrt.hooks.facts import Body
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.hooks.snapshot import MeshFacts
from meshrt.inspect.asking import gather_all
from meshrt.inspect.known import actors_known, waits_known
from meshrt.inspect.listing import add_memory, rows_of, status_of
from meshrt.inspect.tree import STACKS, Stacks
from meshrt.program.program import program_of
from meshrt.program.states import PostMortem
from meshrt.program.targets import Targets, mesh_name
from meshrt.program.words import STOPPED

__all__ = ["Looking"]

_STACK_SECONDS = 1.0


class Looking:
    """The operations of inspection that terminals call."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._program = program_of(services)

    def serve(self) -> None:
        """Register the operations with the runtime."""
        self._services.tool_operations.update(
            {
                "inspect.list": self._list,
                "inspect.status": self._status,
                "inspect.where": self._where,
                "inspect.printing": self._printing,
            }
        )

    async def _targets(self, body: Body) -> Targets:
        return await self._program.looked() if body.get("hosts") else self._program.targets

    async def _list(self, client: ToolClient, body: Body) -> Body:
        state, actor, ranks = (str(body.get(word, "")) for word in ("state", "actor", "ranks"))
        listed = rows_of(await self._targets(body), state or STOPPED, actor, ranks)
        if body.get("memory"):
            await asyncio.get_running_loop().run_in_executor(None, add_memory, listed["rows"])
        return listed

    async def _status(self, client: ToolClient, body: Body) -> Body:
        return status_of(await self._targets(body), self._services)

    async def _where(self, client: ToolClient, body: Body) -> Body:
        """Return the merged stacks of ranks: of an actor, of a selection, or of all ranks."""
        actor, ranks = str(body.get("actor", "")), str(body.get("ranks", ""))
        known = self._program.targets
        named = known.actor(actor, any_thread=True) if "/" in actor else None
        thread = named.thread if named is not None else ""
        verbose = bool(body.get("verbose"))
        actors = partial(actors_known, self._services)
        stacks = Stacks(verbose=verbose, thread=thread, actors=actors, waits=waits_known(self._services))
        targets: dict[str, set[int]] = {}
        if actor or ranks:
            for selected in known.everywhere(actor, ranks, any_thread=True):
                targets.setdefault(selected.actor.mesh.mesh_id, set()).update(selected.ranks)
        for mesh in known.meshes():
            wanted = targets.get(mesh.mesh_id, set()) if actor or ranks else set(mesh.shape.ranks())
            if wanted:
                stacks.expect(mesh.mesh_id, mesh.name, mesh.shape, sorted(wanted))
                targets[mesh.mesh_id] = wanted & set(mesh.alive)
                for rank in sorted(wanted & set(mesh.ended)):
                    stacks.gone(mesh.mesh_id, rank, mesh.ended[rank].how)
        name = known.bare_name(actor) if actor and not thread else ""
        # For an actor that is stopped after an exception, the stack of the exception replaces that of its thread.
        for post_mortem in self._program.sources.stops.post_mortems():
            stacks.instead(post_mortem.mesh_id, post_mortem.rank, post_mortem.actor, _record(post_mortem))
        asked = {"actor": name, "verbose": verbose}
        alive = {mesh_id: sorted(members) for mesh_id, members in targets.items() if members}
        for group in await gather_all(self._services, alive, STACKS, asked, _STACK_SECONDS, stack_suffices=True):
            stacks.add(group)
        stacks.waits.script(self._services.script_waits())
        return stacks.to_wire()

    async def _printing(self, client: ToolClient, body: Body) -> Body:
        """Return the meshes and ranks with output: of an actor, of a selection, or of every mesh; each mesh once."""
        actor, ranks = str(body.get("actor", "")), str(body.get("ranks", ""))
        meshes = self._program.targets.meshes()
        found: dict[str, tuple[str, MeshFacts, set[int]]] = {}
        for selected in self._program.targets.everywhere(actor, ranks) if actor or ranks else ():
            mesh = selected.actor.mesh
            label = selected.actor.label if actor else mesh_name(mesh, meshes)
            found.setdefault(mesh.mesh_id, (label, mesh, set()))[2].update(selected.ranks)
        if not actor and not ranks:
            found = {mesh.mesh_id: (mesh_name(mesh, meshes), mesh, set(mesh.shape.ranks())) for mesh in meshes}
        return {
            "printing": [
                {"label": label, "mesh": mesh.mesh_id, "name": mesh.name, "ranks": sorted(members)}
                for label, mesh, members in found.values()
            ]
        }


def _record(post_mortem: PostMortem) -> Body:
    """Return the fields of a record of `inspect.stacks` for the stack frames of the exception."""
    return {
        "endpoint": post_mortem.endpoint,
        "state": STOPPED,
        "frames": [[place.file, place.line, place.function, False] for place in post_mortem.stack],
        "holder": f"post-mortem: {post_mortem.headline}",
    }

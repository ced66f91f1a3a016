"""What the root tells a process that is no part of the program and calls its actors (`meshrt.connect`).

It is a terminal that has asked for more: the secret, with which it calls the ranks itself. It owns nothing, and is
bounded by the ranks as every caller is. When it ends, what it has asked for here is cancelled.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from meshrt.errors import MeshError, UsageError
from meshrt.hooks.fate import Fate
from meshrt.hooks.plugins import SWITCH_VALUES
from meshrt.hooks.snapshot import MeshFacts
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.registry import Registry
from meshrt.mesh.run import Run
from meshrt.mesh.services import Services
from meshrt.wire.addresses import HostAddress
from meshrt.wire.clients import ActorFacts, Actors, ActorsOf, DescribeActor, Described, Enter, Entered, ReadEndpoints
from meshrt.wire.control import Address
from meshrt.wire.operations import Born, Ended, Watch, WhenBorn
from meshrt.wire.peer import DataReply
from meshrt.wire.versions import Versions, difference, own_versions

if TYPE_CHECKING:
    import asyncio

    from meshrt.hooks.services import ToolClient

__all__ = ["Clients"]

T = TypeVar("T")


class Clients:
    """Serves them. On the root's loop.

    Args:
        run, registry, services, loop: Those of the root.
    """

    def __init__(self, run: Run, registry: Registry, services: Services, loop: RootLoop) -> None:
        self._run = run
        self._registry = registry
        self._services = services
        self._loop = loop
        services.serve_terminals(Enter, self._enter)
        services.serve_terminals(ActorsOf, self._actors)
        services.serve_terminals(DescribeActor, self._describe)
        services.serve_ranks_later(DescribeActor, self._describe_to_rank)
        services.serve_terminals(Watch, self._watch)
        services.serve_terminals(WhenBorn, self._born)

    async def _enter(self, client: ToolClient, asked: Enter) -> Entered:
        if SWITCH_VALUES.get(os.environ.get("MESHRT_DEBUG", "")) is False:
            raise UsageError("other processes cannot call actors of this program: MESHRT_DEBUG=0")
        other = difference(Versions.of(asked.versions), own_versions(), f"process {client.pid}")
        if other:
            raise UsageError(other)
        return Entered(self._run.secret, self._run.address, self._run.certificate)

    async def _actors(self, _client: ToolClient, _asked: ActorsOf) -> Actors:
        return Actors([each for mesh in self._services.meshes() for each in self._of_mesh(mesh)])

    def _of_mesh(self, mesh: MeshFacts) -> list[ActorFacts]:
        record, whole = self._registry.meshes[mesh.mesh_id], mesh.shape.to_wire()
        return [
            ActorFacts(name, mesh.mesh_id, mesh.name, view.to_wire(), whole, record.address.hosts)
            for name, views in mesh.actors.items()
            if record.actors[name].begun  # others cannot be asked yet
            for view in dict.fromkeys(views.values())
        ]

    async def _describe(self, _client: ToolClient, asked: DescribeActor) -> Described:
        rank = self._one_that_lives(asked)
        while True:
            try:
                return await self._services.ask_rank(asked.mesh, rank, ReadEndpoints(asked.actor))
            except MeshError:
                # It may have ended just now; one that has is not asked again.
                another = self._one_that_lives(asked)
                if another == rank:
                    raise
                rank = another

    def _one_that_lives(self, asked: DescribeActor) -> int:
        """Return the rank that is named, or another one of its actor if that has ended."""
        mesh = self._services.mesh(asked.mesh)
        living = [] if mesh is None else [rank for rank in mesh.actors.get(asked.actor, ()) if rank in mesh.alive]
        return asked.rank if asked.rank in living or not living else min(living)

    def _describe_to_rank(self, _address: Address, asked: DescribeActor, reply: DataReply[Described]) -> None:
        def answered(answer: asyncio.Future[Described]) -> None:
            error = answer.exception()
            if isinstance(error, Exception):
                reply.fail(error)
            else:
                reply(answer.result())

        self._services.ask_rank(asked.mesh, asked.rank, ReadEndpoints(asked.actor)).add_done_callback(answered)

    async def _watch(self, _client: ToolClient, asked: Watch) -> Ended:
        ended: asyncio.Future[Fate] = self._loop.running.create_future()
        told = _once(ended)
        try:
            self._registry.watch(asked.mesh, asked.rank, told)
            return Ended(await ended)
        finally:
            self._registry.unwatch(asked.mesh, asked.rank, told)

    async def _born(self, _client: ToolClient, asked: WhenBorn) -> Born:
        born: asyncio.Future[HostAddress | None] = self._loop.running.create_future()
        self._registry.when_born(asked.mesh, asked.rank, _once(born))
        return Born(await born)


def _once(future: asyncio.Future[T]) -> Callable[[T], None]:
    """Return what completes a future whose task may have been cancelled: its process has ended."""
    loop = future.get_loop()

    def complete(value: T) -> None:
        if not future.done():
            future.set_result(value)

    def called(value: T) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the program ends
            loop.call_soon_threadsafe(complete, value)

    return called

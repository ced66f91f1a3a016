"""What an actor has made ends with it: the meshes that it has started, and the actors that it has spawned elsewhere.

Each of these ends what it has made in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshrt.hooks.operations import Nothing
from meshrt.mesh.record import Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.mesh.stopping import Stopping
from meshrt.wire.control import Address
from meshrt.wire.operations import EndActor, EndMade
from meshrt.wire.peer import DataReply

if TYPE_CHECKING:
    import asyncio

__all__ = ["Ownership"]

#: Seconds for what was sent before to what the actor has made, as in ``stop()``; and then for the answers.
_GRACE = 5.0
_LATE = 1.0


class Ownership:
    """Ends it. On the root's loop.

    Args:
        registry, services, stopping: Those of the root.
    """

    def __init__(self, registry: Registry, services: Services, stopping: Stopping) -> None:
        self._registry = registry
        self._services = services
        self._stopping = stopping
        services.serve_ranks_later(EndMade, self._end_made)

    def rank_gone(self, mesh_id: str, rank: int, why: str) -> None:
        """A rank has ended: end the actors that its actors have spawned on others. Its meshes end elsewhere."""
        for owner in self._registry.spawners_on(mesh_id, rank):
            self._end_actors(owner, why)

    def _end_made(self, address: Address, asked: EndMade, answer: DataReply[Nothing]) -> None:
        """An actor was stopped: answer when all that it has made has ended, or when the time for that is over."""
        owner = Owner(*address, asked.actor)
        actors = self._end_actors(owner, asked.why)
        meshes = [
            self._stopping.stop(record.mesh_id, _GRACE, asked.why)
            for record in self._registry.running()
            if record.owner == owner and record.stopped is None
        ]
        left = len(actors) + len(meshes)

        def over() -> None:
            nonlocal left
            if left >= 0:
                left = -1
                answer(Nothing())

        def ended(*_future: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                over()

        for actor in actors:
            actor.add_done_callback(ended)
        for mesh in meshes:
            mesh.when_done(ended, background=False)
        if left == 0:
            over()
        else:
            self._services.call_later(_GRACE + _LATE, over)

    def _end_actors(self, owner: Owner, why: str) -> list[asyncio.Future[Nothing]]:
        asked = []
        for mesh_id, actor, rank in self._registry.spawned_by(owner):
            future = self._services.ask_rank(mesh_id, rank, EndActor(actor, why))
            future.add_done_callback(lambda done: done.exception())  # a rank that is gone has no actor any more
            asked.append(future)
        return asked

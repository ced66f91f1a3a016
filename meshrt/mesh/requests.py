"""What ranks may ask the root for: to be told of births and deaths, and to start and stop meshes of their own.

Each answer may come later; until then the rank waits, so any error is an answer too. On the root's loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from meshrt.errors import MeshError, ProtocolError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Nothing
from meshrt.mesh.hosts import Hosts
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.services import Services
from meshrt.mesh.singletons import Singletons
from meshrt.mesh.spawning import Spawning
from meshrt.mesh.spec import MeshSpec
from meshrt.mesh.stopping import Stopping
from meshrt.selection import Shape
from meshrt.wire.control import Address
from meshrt.wire.operations import (
    ActorSpawned,
    AllowRestarts,
    Born,
    DimensionsNamed,
    Ended,
    FindSingleton,
    Initialized,
    Restarted,
    Spawned,
    SpawnMesh,
    StopMesh,
    Watch,
    WhenBorn,
    WhenInitialized,
    WhenRestarted,
)
from meshrt.wire.peer import DataReply

__all__ = ["RankRequests"]

_log = logging.getLogger("meshrt")


class RankRequests:
    """The requests of ranks.

    Args:
        services: Passes them on.
        loop, registry, restarts, lifecycle, spawning, stopping, singletons: Serve them.
    """

    def __init__(
        self,
        services: Services,
        loop: RootLoop,
        registry: Registry,
        restarts: Restarts,
        lifecycle: Lifecycle,
        spawning: Spawning,
        stopping: Stopping,
        singletons: Singletons,
    ) -> None:
        self._loop = loop
        self._registry = registry
        self._restarts = restarts
        self._lifecycle = lifecycle
        self._spawning = spawning
        self._stopping = stopping
        self._singletons = singletons
        services.serve_ranks_later(Watch, self._watch)
        services.serve_ranks_later(WhenBorn, self._born)
        services.serve_ranks_later(WhenRestarted, self._restarted)
        services.serve_ranks_later(SpawnMesh, self._spawn)
        services.serve_ranks_later(FindSingleton, self._singleton)
        services.serve_ranks_later(WhenInitialized, self._initialized)
        services.serve_ranks_later(StopMesh, self._stop)
        services.on_report(AllowRestarts, self._allow_restarts)
        services.on_report(ActorSpawned, self._actor_spawned)
        services.on_report(DimensionsNamed, self._dimensions_named)

    def _watch(self, _address: Address, asked: Watch, answer: DataReply[Ended]) -> None:
        self._registry.watch(asked.mesh, asked.rank, lambda fate: answer(Ended(fate)))

    def _allow_restarts(self, mesh_id: str, rank: int, asked: AllowRestarts) -> None:
        self._restarts.allow(asked.mesh, list(asked.ranks), asked.actor, asked.count, (mesh_id, rank))

    def _actor_spawned(self, mesh_id: str, rank: int, told: ActorSpawned) -> None:
        try:
            view = Shape.from_wire(told.view)
        except ValueError as error:
            raise ProtocolError(f"the view of actor {told.actor!r}: {error}") from None
        spawner = None if told.spawner is None else Owner(mesh_id, rank, told.spawner)
        self._registry.actor_spawned(told.mesh, told.actor, view, spawner)

    def _dimensions_named(self, mesh_id: str, _rank: int, told: DimensionsNamed) -> None:
        self._registry.dimensions_named(mesh_id, dict(told.sizes))

    def _restarted(self, _address: Address, asked: WhenRestarted, answer: DataReply[Restarted]) -> None:
        def restarted(incarnation: int, fate: Fate) -> None:
            answer(Restarted(incarnation, fate))

        self._registry.when_restarted(asked.mesh, asked.rank, asked.actor, restarted)

    def _born(self, _address: Address, asked: WhenBorn, answer: DataReply[Born]) -> None:
        self._registry.when_born(asked.mesh, asked.rank, lambda host: answer(Born(host)))

    def _spawn(self, address: Address, asked: SpawnMesh, answer: DataReply[Spawned]) -> None:
        owner = Owner(*address, asked.actor)

        def start() -> None:
            hosts = Hosts(mesh_id=asked.on_mesh, members=tuple(asked.on_ranks))
            mesh_id = self._spawning.spawn(MeshSpec.of_request(asked), hosts, owner)
            # On the loop, where ranks end: the one that asks may have ended meanwhile.
            self._loop.post(lambda: made(mesh_id))

        def made(mesh_id: str) -> None:
            self._lifecycle.own(owner, mesh_id)
            answer(_spawned(self._registry.meshes[mesh_id]))

        _in_thread(start, answer)

    def _singleton(self, _address: Address, asked: FindSingleton, answer: DataReply[Spawned]) -> None:
        _in_thread(lambda: answer(_spawned(self._singletons.find(asked.actor, create=asked.create))), answer)

    def _initialized(self, _address: Address, asked: WhenInitialized, answer: DataReply[Initialized]) -> None:
        initialized = self._registry.meshes[asked.mesh].initialized
        initialized.when_done(lambda: answer(Initialized(str(initialized.exception() or ""))), background=False)

    def _stop(self, _address: Address, asked: StopMesh, answer: DataReply[Nothing]) -> None:
        if asked.mesh not in self._registry.meshes:
            answer(Nothing())
            return
        stopped = self._stopping.stop(asked.mesh, asked.grace, asked.why)
        stopped.when_done(lambda: answer(Nothing()), background=False)


def _spawned(record: MeshRecord) -> Spawned:
    return Spawned(record.mesh_id, record.name, record.address.hosts)


def _in_thread(start: Callable[[], None], answer: DataReply[Spawned]) -> None:
    """Start a mesh for a rank, not on the loop: placing agents may take a moment."""

    def work() -> None:
        try:
            start()
        except Exception as error:
            # The rank waits: any error is its answer.
            if not isinstance(error, MeshError):
                _log.exception("a mesh for a rank")
            answer.fail(error)

    threading.Thread(target=work, name="meshrt-spawn", daemon=True).start()

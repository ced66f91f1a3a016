"""The script as the owner of its meshes (`meshrt.mesh.owner.MeshOwner`): the root runs in the same process."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

from meshrt.errors import MeshError, UsageError
from meshrt.hooks.plugins import plugins
from meshrt.mesh.future import Future
from meshrt.mesh.live import LiveLogs
from meshrt.mesh.registry import Registry
from meshrt.mesh.script import Script
from meshrt.mesh.services import Services
from meshrt.mesh.shown import Shown
from meshrt.mesh.singletons import Singletons
from meshrt.mesh.spawning import Spawning
from meshrt.mesh.spec import MeshSpec
from meshrt.mesh.stopping import Stopping
from meshrt.selection import Shape
from meshrt.transport.driver import Driver
from meshrt.wire.addresses import MeshAddress
from meshrt.wire.clients import Described, ReadEndpoints

if TYPE_CHECKING:
    import asyncio

    from meshrt.mesh.hosts import Hosts

__all__ = ["ScriptOwner"]

#: Seconds for a rank to answer.
_ANSWER = 10.0


class ScriptOwner:
    """The meshes of the program, including those that ranks have made. Any thread.

    Args:
        driver, registry, services, script, spawning, stopping, singletons, live: Those of the root.
    """

    def __init__(
        self,
        driver: Driver,
        registry: Registry,
        services: Services,
        script: Script,
        spawning: Spawning,
        stopping: Stopping,
        singletons: Singletons,
        live: LiveLogs,
    ) -> None:
        self.driver = driver
        self._registry = registry
        self._services = services
        self._script = script
        self._spawning = spawning
        self._stopping = stopping
        self._singletons = singletons
        self._live = live

    def owns(self, mesh_id: str) -> bool:
        """Whether it is a mesh of this program that is remembered."""
        return mesh_id in self._registry.meshes

    def spawn(self, spec: MeshSpec, hosts: Hosts) -> str:
        """Start the ranks of a mesh; see `Spawning.spawn`."""
        return self._spawning.spawn(spec, hosts)

    def singleton(self, name: str, *, create: bool) -> tuple[str, MeshAddress]:
        """Return the process of a singleton; see `Singletons.find`."""
        record = self._singletons.find(name, create=create)
        return record.mesh_id, record.address

    def endpoints(self, mesh_id: str, actor: str) -> Described:
        """Ask rank 0 of a mesh which endpoints an actor has. Raises MeshError. Not on the root's loop."""
        found: queue.SimpleQueue[asyncio.Future[Described]] = queue.SimpleQueue()
        asked = ReadEndpoints(actor)
        self._services.call_soon(
            lambda: self._services.ask_rank(mesh_id, 0, asked).add_done_callback(lambda answer: found.put(answer))
        )
        try:
            return found.get(timeout=_ANSWER).result()
        except queue.Empty:
            raise MeshError(f"the endpoints of {actor} are not known: no answer within {_ANSWER:g} s") from None

    def address_of(self, mesh_id: str) -> MeshAddress:
        """Return where the ranks of a mesh listen."""
        return self._registry.meshes[mesh_id].address

    def name_of(self, mesh_id: str) -> str:
        """Return the name of a mesh."""
        return self._registry.meshes[mesh_id].name

    def initialized(self, mesh_id: str) -> Future[None]:
        """Return the future that is done when every rank runs."""
        return self._registry.meshes[mesh_id].initialized

    def about(self, mesh_id: str, rank: int) -> tuple[str, int]:
        """Return host and pid of a rank, as far as known."""
        record = self._registry.meshes[mesh_id]
        return record.agent_of[rank].host, record.pids.get(rank, 0)

    def check_whole(self, mesh_id: str, shape: Shape) -> None:
        """Raise UsageError if ``shape`` is a part of the mesh only."""
        record = self._registry.meshes[mesh_id]
        if len(shape) != len(record.shape):
            raise UsageError(
                f"{record.name} can only be stopped as a whole; this is a slice ({shape} of {record.shape}); "
                "stop an actor on a slice with its own stop()"
            )

    def failed(self, mesh_id: str, error: BaseException) -> None:
        """A block that owns a mesh ends with an exception, and the mesh with it."""
        self._registry.meshes[mesh_id].abandoned = True
        self._script.failed(error)

    def left(self, mesh_id: str) -> None:
        """A block that owns a mesh ends without an error, and the mesh with it."""
        self._registry.meshes[mesh_id].left = True

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Report calls to the mesh that are not answered for ``seconds``."""
        self._script.watch(mesh_id, seconds)

    def listen_for_ide(self, port: int) -> None:
        """Let an IDE attach to the program at a port of this machine."""
        plugins.load("dap", self._services, in_root=True)
        self._services.tables["dap"].listen(port)

    def show(self, shown: Shown | None, mesh_id: str, shape: Shape | None = None) -> None:
        """Change what the terminal shows of the output of ranks.

        Args:
            shown: The setting; None: what holds otherwise.
            mesh_id: "": for all meshes that have no setting of their own.
            shape: The view that it is asked for.
        Raises:
            UsageError: It is a part of the mesh only.
            SelectionError: The mesh has no such ranks.
        """
        if not mesh_id:
            self._live.set_program(shown)
            return
        record = self._registry.meshes[mesh_id]
        if shape is not None and len(shape) != len(record.shape):
            raise UsageError(
                f"logs: the setting applies to all ranks of {record.name}, but this is a slice of it ({shape} of "
                f"{record.shape}); pass the whole mesh, and select ranks with 'ranks(...)'"
            )
        self._live.set_mesh(record, shown)

    def stop(self, mesh_id: str, grace: float, why: str = "") -> Future[None]:
        """End a mesh; see `Stopping.stop`."""
        return self._stopping.stop(mesh_id, grace, why)

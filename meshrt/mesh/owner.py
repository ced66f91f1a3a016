"""The owner of meshes, which starts and stops them: in the script the root itself, in a rank the root by request."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from meshrt.actor.context import current_call
from meshrt.errors import MeshError, ShutdownError, SpawnError, UsageError
from meshrt.mesh.future import Future, Settled
from meshrt.mesh.shown import Shown
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Shape
from meshrt.transport.driver import Driver
from meshrt.transport.process import ProcessRuntime, current_runtime
from meshrt.wire.addresses import MeshAddress
from meshrt.wire.clients import DescribeActor, Described
from meshrt.wire.operations import FindSingleton, Initialized, StopMesh, WhenInitialized

if TYPE_CHECKING:
    from meshrt.mesh.hosts import Hosts

__all__ = ["MeshOwner", "about", "owner_for_new", "owner_for_old"]

#: Seconds for the root to begin a mesh on behalf of a rank.
_SPAWN_SECONDS = 30.0

_making = threading.Lock()


class MeshOwner(Protocol):
    """What a `ProcMesh` needs of its owner."""

    driver: Driver

    def owns(self, mesh_id: str) -> bool: ...
    def about(self, mesh_id: str, rank: int) -> tuple[str, int]: ...
    def spawn(self, spec: MeshSpec, hosts: Hosts) -> str: ...
    def singleton(self, name: str, *, create: bool) -> tuple[str, MeshAddress]: ...
    def endpoints(self, mesh_id: str, actor: str) -> Described: ...
    def address_of(self, mesh_id: str) -> MeshAddress: ...
    def name_of(self, mesh_id: str) -> str: ...
    def initialized(self, mesh_id: str) -> Future[None]: ...
    def check_whole(self, mesh_id: str, shape: Shape) -> None: ...
    def failed(self, mesh_id: str, error: BaseException) -> None: ...
    def left(self, mesh_id: str) -> None: ...
    def watch(self, mesh_id: str, seconds: float) -> None: ...
    def listen_for_ide(self, port: int) -> None: ...
    def show(self, shown: Shown | None, mesh_id: str, shape: Shape | None = None) -> None: ...
    def stop(self, mesh_id: str, grace: float, why: str = "") -> Future[None]: ...


class _Made(NamedTuple):
    """A mesh that a rank has made."""

    name: str
    address: MeshAddress


class RankOwner:
    """A rank that owns meshes: the root starts them, and stops them when this rank ends."""

    #: Stopped meshes that are remembered.
    KEPT = 200

    def __init__(self, runtime: ProcessRuntime) -> None:
        self.driver = runtime.driver
        self._runtime = runtime
        self._made: dict[str, _Made] = {}
        #: Those that are being stopped, or were.
        self._stopped: dict[str, Settled[None]] = {}

    def owns(self, mesh_id: str) -> bool:
        """Whether this rank made the mesh. It forgets those that were stopped long ago."""
        return mesh_id in self._made

    def spawn(self, spec: MeshSpec, hosts: Hosts) -> str:
        """Ask the root to start the ranks. Raises MeshError with its refusal."""
        if hosts.engine is not None:
            raise UsageError("engine= is only for the script: a mesh made inside a rank uses the engine of its program")
        call = current_call()
        if call is not None:
            call.instance.has_made = True
        request = spec.to_request("" if call is None else call.instance.name, hosts.mesh_id, hosts.members)
        spawned = self._runtime.tree.ask(request, _SPAWN_SECONDS)
        address = MeshAddress(tuple(spawned.hosts), spec.extent.nelements)
        self._made[spawned.mesh] = _Made(spawned.name, address)
        return spawned.mesh

    def singleton(self, name: str, *, create: bool) -> tuple[str, MeshAddress]:
        """Ask the root for the process of a singleton. Raises MeshError with its refusal."""
        found = self._runtime.tree.ask(FindSingleton(name, create), _SPAWN_SECONDS)
        return found.mesh, MeshAddress(tuple(found.hosts), 1)

    def endpoints(self, mesh_id: str, actor: str) -> Described:
        """Ask rank 0 of a mesh, by the root, which endpoints an actor has. Raises MeshError."""
        return self._runtime.tree.ask(DescribeActor(mesh_id, 0, actor), _SPAWN_SECONDS)

    def address_of(self, mesh_id: str) -> MeshAddress:
        """Return where the ranks of a mesh listen."""
        return self._made[mesh_id].address

    def name_of(self, mesh_id: str) -> str:
        """Return the name of a mesh."""
        return self._made[mesh_id].name

    def initialized(self, mesh_id: str) -> Future[None]:
        """Done when every rank runs; SpawnError if one could not be started."""
        future: Settled[None] = Settled(self.driver, f"starting the ranks of {self.name_of(mesh_id)}")

        def answered(answer: Initialized | None, error: Exception | None) -> None:
            why = str(error) if answer is None else answer.why
            if why:
                future.reject(SpawnError(why))
            else:
                future.resolve(None)

        self._runtime.tree.ask_later(WhenInitialized(mesh_id), answered)
        return future

    def about(self, mesh_id: str, rank: int) -> tuple[str, int]:
        """Only the root knows where the ranks are."""
        return "", 0

    def check_whole(self, mesh_id: str, shape: Shape) -> None:
        """Raise UsageError if ``shape`` is a part of the mesh only."""
        name, address = self._made[mesh_id]
        if len(shape) != address.size:
            raise UsageError(f"{name} can only be stopped as a whole; this is a slice ({shape})")

    def failed(self, mesh_id: str, error: BaseException) -> None:
        """The root hears of it by the error that this rank itself ends with."""

    def left(self, mesh_id: str) -> None:
        """Do nothing: the root need not know why this rank ends its meshes."""

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Only the root watches calls (`proc_mesh` has refused it)."""

    def listen_for_ide(self, port: int) -> None:
        """Only the root does (`proc_mesh` has refused it)."""

    def show(self, shown: Shown | None, mesh_id: str, shape: Shape | None = None) -> None:
        """Only the script has a terminal. Raises UsageError."""
        raise UsageError("meshrt.logs() changes the terminal of the script and must be called there; this is a rank")

    def stop(self, mesh_id: str, grace: float, why: str = "") -> Future[None]:
        """Ask the root to end the mesh, behind the calls that this rank has sent."""
        first = mesh_id not in self._stopped
        future = self._stopped.setdefault(mesh_id, Settled(self.driver, f"stopping {self.name_of(mesh_id)}"))

        def has_ended() -> None:
            future.resolve(None)
            ended = [each for each, stopped in tuple(self._stopped.items()) if stopped.finished]
            for each in ended[: -self.KEPT]:
                self._made.pop(each, None)
                self._stopped.pop(each, None)

        def ask(left: float) -> None:
            request = StopMesh(mesh_id, left, why)
            self._runtime.tree.ask_later(request, lambda _answer, _error: has_ended())

        if first:
            self.driver.queues.when_written(mesh_id, grace, ask)
        elif grace <= 0 and not future.finished:
            ask(0.0)  # again, without a grace
        return future


def _owner_here() -> MeshOwner | None:
    """Return the owner of what this process has made: the rank that it is, or the script; None: it has no program."""
    try:
        runtime = current_runtime()
    except MeshError:
        return None
    with _making:
        if runtime.owner is None:  # the root is made with one
            runtime.owner = RankOwner(runtime)
        owner: MeshOwner = runtime.owner
    return owner


def owner_for_new() -> MeshOwner:
    """Return the owner that starts meshes for the calling process."""
    owner = _owner_here()
    if isinstance(owner, RankOwner):
        return owner
    if sys.is_finalizing():  # where the import below would fail with an unclear message
        raise ShutdownError("the interpreter is ending: no new mesh can be started")
    from meshrt.mesh.program import start_root  # start-up: ranks never need it

    return start_root().owner


def owner_for_old(
    mesh_id: str, name: str, why: str = "is not owned by this process; only the process that created it can stop it"
) -> MeshOwner:
    """Return the owner of a mesh if it is this process. Raises UsageError: ``name`` and ``why``."""
    owner = _owner_here()
    if owner is None or not owner.owns(mesh_id):
        current_runtime()  # a forked child is told that it is one
        raise UsageError(f"{name} {why}")
    return owner


def about(mesh_id: str, rank: int) -> tuple[str, int]:
    """Return host and pid of a rank, as far as this process knows."""
    owner = _owner_here()
    return ("", 0) if owner is None or not owner.owns(mesh_id) else owner.about(mesh_id, rank)

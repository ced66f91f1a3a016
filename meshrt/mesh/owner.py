"""Who starts and stops meshes for the calling code: the root itself in the script, the root by request in a rank."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from meshrt.actor.context import current_call
from meshrt.actor.errors import type_name
from meshrt.errors import ShutdownError, SpawnError, UsageError, one_line
from meshrt.hooks.facts import Body
from meshrt.mesh.future import Future, Settled
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Shape
from meshrt.transport.driver import Driver
from meshrt.transport.process import ProcessRuntime, current_runtime, has_runtime
from meshrt.wire.codec import text_of

if TYPE_CHECKING:
    from meshrt.mesh.root import Root

__all__ = ["MeshOwner", "about", "owner_for_new", "owner_for_old", "why_ended"]

#: Seconds for the root to begin a mesh on behalf of a rank.
_SPAWN_SECONDS = 30.0
#: Characters of the reason that what is stopped because of an error is told.
_WHY = 500

_making = threading.Lock()


class MeshOwner(Protocol):
    """What a `ProcMesh` needs of its owner."""

    directory: str
    driver: Driver

    def spawn(self, spec: MeshSpec, engine: Any = None) -> str: ...
    def name_of(self, mesh_id: str) -> str: ...
    def initialized(self, mesh_id: str) -> Future[None]: ...
    def check_whole(self, mesh_id: str, shape: Shape) -> None: ...
    def failed(self, mesh_id: str, error: BaseException) -> None: ...
    def left(self, mesh_id: str) -> None: ...
    def watch(self, mesh_id: str, seconds: float) -> None: ...
    def listen_for_ide(self, port: int) -> None: ...
    def stop(self, mesh_id: str, grace: float, why: str = "") -> Future[None]: ...


class RankOwner:
    """A rank that owns meshes: the root starts them, and stops them when this rank ends."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self.directory = runtime.directory
        self.driver = runtime.driver
        self._runtime = runtime
        self._names: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._stopped: dict[str, Settled[None]] = {}

    def owns(self, mesh_id: str) -> bool:
        """Whether this rank made the mesh."""
        return mesh_id in self._names

    def spawn(self, spec: MeshSpec, engine: Any = None) -> str:
        """Ask the root to start the ranks. Raises MeshError with its refusal."""
        if engine is not None:
            raise UsageError(
                "a mesh made inside a rank is placed as its program's meshes are: engine= is for the script"
            )
        call = current_call()
        body = {**spec.to_wire(), "actor": "" if call is None else call.instance.name}
        answer = self._runtime.tree.request_root("mesh.spawn", body, _SPAWN_SECONDS)
        mesh_id: str = answer["mesh_id"]
        self._names[mesh_id] = answer["name"]
        self._sizes[mesh_id] = spec.extent.nelements
        return mesh_id

    def name_of(self, mesh_id: str) -> str:
        """Return the name of a mesh."""
        return self._names[mesh_id]

    def initialized(self, mesh_id: str) -> Future[None]:
        """Done when every rank runs; SpawnError if one could not be started."""
        future: Settled[None] = Settled(self.driver, f"starting the ranks of {self._names[mesh_id]}")

        def answered(body: Body | None, why: str) -> None:
            why = why or (body or {}).get("why", "")
            if why:
                future.reject(SpawnError(why))
            else:
                future.resolve(None)

        self._runtime.tree.ask_root("mesh.initialized", {"mesh": mesh_id}, answered)
        return future

    def check_whole(self, mesh_id: str, shape: Shape) -> None:
        """Raise UsageError if ``shape`` is a part of the mesh only."""
        if len(shape) != self._sizes[mesh_id]:
            raise UsageError(f"{self._names[mesh_id]} is stopped as a whole, this is a slice of it ({shape})")

    def failed(self, mesh_id: str, error: BaseException) -> None:
        """The root hears of it by the error that this rank itself ends with."""

    def left(self, mesh_id: str) -> None:
        """How this rank ends its meshes is of no account to the root."""

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Only the root looks after calls (`proc_mesh` has refused it)."""

    def listen_for_ide(self, port: int) -> None:
        """Only the root does (`proc_mesh` has refused it)."""

    def stop(self, mesh_id: str, grace: float, why: str = "") -> Future[None]:
        """Ask the root to end the mesh, behind the calls that this rank has sent."""
        first = mesh_id not in self._stopped
        future = self._stopped.setdefault(mesh_id, Settled(self.driver, f"stopping {self._names[mesh_id]}"))

        def ask(left: float) -> None:
            body = {"mesh": mesh_id, "grace": left, "why": why}
            self._runtime.tree.ask_root("mesh.stop", body, lambda _body, _why: future.resolve(None))

        if first:
            self.driver.queues.when_written(mesh_id, grace, ask)
        elif grace <= 0 and not future.finished:
            ask(0.0)  # at once, after all
        return future


def why_ended(error: BaseException | None) -> str:
    """Say which error ends a block, for the ``__cleanup__`` of what ends with it; "" for None."""
    if error is None:
        return ""
    first_line = text_of(error).partition("\n")[0]
    return one_line(f"the block that it lived in has ended with {type_name(error)}: {first_line}", _WHY)


def _root_of(mesh_id: str) -> Root | None:
    """The root, if it runs in this process and owns the mesh."""
    if "meshrt.mesh.root" not in sys.modules:
        return None
    from meshrt.mesh.root import owner_of  # start-up: see `owner_for_new`

    return owner_of(mesh_id)


def _rank_owner() -> RankOwner | None:
    """Return the owner of the meshes of this rank, or None: this is no rank."""
    if not has_runtime():
        return None
    runtime = current_runtime()
    with _making:
        owner: RankOwner | None = runtime.owner
        if owner is None and not runtime.is_root:
            owner = runtime.owner = RankOwner(runtime)
    return owner


def owner_for_new() -> MeshOwner:
    """Return who starts a mesh for the calling process."""
    rank_owner = _rank_owner()
    if rank_owner is not None:
        return rank_owner
    if sys.is_finalizing():  # where the import below would fail, without a word to the point
        raise ShutdownError("the interpreter is ending: no new mesh can be started")
    from meshrt.mesh.root import start_root  # start-up: ranks never need it

    return start_root()


def owner_for_old(mesh_id: str, name: str) -> MeshOwner:
    """Return the owner of a mesh if it is this process. Raises UsageError."""
    rank_owner = _rank_owner()
    if rank_owner is not None and rank_owner.owns(mesh_id):
        return rank_owner
    root = _root_of(mesh_id)
    if root is None:
        current_runtime()  # a forked child is told that it is one
        raise UsageError(f"{name} is not owned by this process; the one that made it stops it")
    return root


def about(mesh_id: str, rank: int) -> tuple[str, int]:
    """Return host and pid of a rank, as far as this process knows."""
    root = _root_of(mesh_id)
    return ("", 0) if root is None else root.about(mesh_id, rank)

"""``get_or_spawn``: one actor of a name in the program, for the script and for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from meshrt.actor.actor import Actor
from meshrt.actor.described import class_of, shown
from meshrt.actor.replacing import replacement_of
from meshrt.errors import CallTimeout
from meshrt.hooks.facts import Wait
from meshrt.mesh.actor_mesh import ActorMesh
from meshrt.mesh.call import InitCall
from meshrt.mesh.future import Future
from meshrt.mesh.owner import about, owner_for_new
from meshrt.mesh.proc_mesh import check_spawned
from meshrt.mesh.sending import pack_init, send_init
from meshrt.mesh.target import Target
from meshrt.selection import Shape
from meshrt.transport.driver import Driver
from meshrt.transport.process import current_runtime
from meshrt.wire import codec

if TYPE_CHECKING:
    from meshrt.mesh.handle import ActorMesh as Handle

__all__ = ["get_or_spawn", "get_singleton"]

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")


def get_or_spawn(name: str, cls: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Future[Handle[A]]:
    """Return the program's only actor of a name; the first call builds it. From the script or any rank.

    It has a process of its own on the script's host, and ends with the program, or by ``stop()`` of its handle. When it
    has failed or ended, the next call builds another one.

    Args:
        name: Letters, digits, ``_`` and ``-``. Names of other actors do not count.
        cls, args, kwargs: As in `ProcMesh.spawn`; the same in each call. Plain data are compared by value.
    Returns:
        A future of its handle, a mesh of one rank. It fails with what ``__init__`` has raised; with UsageError if the
        singleton was built from another class or other arguments; with ProcessDied if its process has ended.
    Raises:
        UsageError, ValueError, TypeError, ArgumentNotSerializable: As `ProcMesh.spawn`.
        SpawnError: Its process cannot be started.
    """
    given: Any = cls
    given = replacement_of(given)
    check_spawned(name, given, args, kwargs)
    owner = owner_for_new()
    mesh_id, address = owner.singleton(name, create=True)
    shape = Shape.unity()
    target = Target(mesh_id, name, address, shape, shape, about)
    packed = pack_init(target, given, args, kwargs, None, owned=False)
    built_from = (codec.digest((given, args, sorted(kwargs.items()))), _label(given, args, kwargs))
    runtime = current_runtime()
    runtime.tree.actor_spawned(mesh_id, name, shape, owned=False)
    init = send_init(target, given.__qualname__, packed, singleton=built_from)
    return _Obtained(runtime.driver, init, ActorMesh(given, target, init))


@overload
def get_singleton(name: str) -> Handle[Any]: ...


@overload
def get_singleton(name: str, cls: type[A]) -> Handle[A]: ...


def get_singleton(name: str, cls: type[Actor] | None = None) -> Any:
    """Return the handle of a singleton that `get_or_spawn` has made, in the script or any rank.

    Args:
        cls: Its class, for type checkers; by default the singleton is asked for its endpoints.
    Raises:
        UsageError: The program has no singleton of this name.
        MeshError: It does not say which endpoints it has.
    """
    owner = owner_for_new()
    mesh_id, address = owner.singleton(name, create=False)
    found = class_of(owner.endpoints(mesh_id, name)) if cls is None else cls
    return ActorMesh(found, Target(mesh_id, name, address, Shape.unity(), Shape.unity(), about), None)


def _label(cls: type, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """Return the call of a class as text; values of other classes than Python's own by their class alone."""
    written = [shown(each) for each in args] + [f"{name}={shown(each)}" for name, each in kwargs.items()]
    return f"{cls.__module__}.{cls.__qualname__}({', '.join(written)})"


class _Obtained(Future[Any]):
    """Done when a singleton is there."""

    __slots__ = ("_init", "_mesh")
    disturbable = True

    def __init__(self, driver: Driver, init: InitCall, mesh: ActorMesh[Any]) -> None:
        super().__init__(driver)
        self._init = init
        self._mesh = mesh
        init.when_done(self.finish, background=False)

    def _produce(self) -> ActorMesh[Any]:
        self._init.get()
        return self._mesh

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """See `Pending.owed_by`."""
        return self._init.owed_by(mesh_id, rank)

    def awaited(self) -> Wait | None:
        """See `Pending.awaited`."""
        return self._init.awaited()

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`."""
        return self._init.overdue(seconds)

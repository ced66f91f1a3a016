"""``ProcMesh``: processes, one per point; and what starts them."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from meshrt.actor.actor import Actor
from meshrt.actor.context import current_call
from meshrt.actor.replacing import replacement_of
from meshrt.errors import UsageError
from meshrt.mesh.actor_mesh import ActorMesh
from meshrt.mesh.block import Block, check_grace
from meshrt.mesh.engine import engine_of
from meshrt.mesh.environment import EnvOption
from meshrt.mesh.future import Future, done
from meshrt.mesh.hosts import Hosts, first_ranks, on_this_machine
from meshrt.mesh.owner import MeshOwner, about, owner_for_new, owner_for_old
from meshrt.mesh.restarts import Rebuilding, Restart, check_max_restarts, check_restartable, end_rebuilding
from meshrt.mesh.sending import pack_init, send_init
from meshrt.mesh.several import all_done
from meshrt.mesh.shown import parse_shown
from meshrt.mesh.spec import Devices, MeshSpec, PostMortem, check_name
from meshrt.mesh.target import Target
from meshrt.selection import MeshTrait, Shape, Slice
from meshrt.transport.driver import Driver
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.transport.threads import on_event_loop
from meshrt.wire import codec
from meshrt.wire.addresses import MeshAddress
from meshrt.wire.refused import argument_refused

if TYPE_CHECKING:
    from meshrt.mesh.engine import Engine
    from meshrt.mesh.handle import ActorMesh as Handle

__all__ = ["HostMesh", "ProcMesh", "check_spawned", "host_mesh", "logs", "start_mesh", "this_host"]

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")
Setup = Callable[[], object] | None


def this_host() -> HostMesh:
    """Return the host that this process runs on, as a mesh without dimensions: in a rank, that of the rank."""
    if not has_runtime() or current_runtime().is_root:
        return HostMesh(start_mesh, Shape.unity(), on_this_machine())
    runtime = current_runtime()
    rank = Shape((), Slice(offset=runtime.rank, sizes=(), strides=()))
    return HostMesh(start_mesh, rank, Hosts(mesh_id=runtime.mesh_id), (runtime.host,))


def host_mesh(hosts: int, engine: Engine | str | None = None) -> HostMesh:
    """Return hosts of an engine, dimension ``hosts``. They are placed when processes are first started on them.

    Args:
        hosts: How many.
        engine: Places them; this machine by default.
    Raises:
        UsageError: That is no number of hosts.
    """
    if type(hosts) is not int or hosts < 1:
        raise UsageError(f"hosts={hosts!r}: expected a number of hosts, an integer of 1 or more")
    placed_by = None if engine is None else engine_of(engine)
    return HostMesh(start_mesh, Shape.from_extent({"hosts": hosts}), Hosts(placed_by, hosts))


def logs(shown: str | None, mesh: ProcMesh | ActorMesh[Actor] | None = None) -> None:
    """Change what the terminal shows of the output of ranks. The log files have all of it in any case.

    ``"on"``: all, equal lines of ranks once; ``"off"``: nothing. Or options: ``"ranks(0)"``, a selection;
    ``"fold=0.5"``, the seconds that a line waits for equal ones of other ranks (``fold=off``: none); ``"limit=100"``,
    lines a second; ``"level=info"``, the least level of log records, instead of that of the script's root logger. An
    option that is left out is as in ``"on"``.

    Args:
        shown: The setting. None: what holds otherwise: for a mesh the setting of the program, for the program
            ``MESHRT_LOGS``.
        mesh: The mesh that it is for: all of its ranks, or an actor on them. None: all meshes without a setting of
            their own.
    Raises:
        UsageError: The setting is invalid; this is a rank; the mesh is a slice, or was made by another process.
        SelectionError: The mesh has no such ranks.
    """
    setting = None if shown is None else parse_shown(shown, "logs: ")
    if mesh is None:
        owner_for_new().show(setting, "")
        return
    if not isinstance(mesh, ProcMesh | ActorMesh):
        raise UsageError(f"logs: mesh= is a mesh of processes, or of actors, not {type(mesh).__name__}")
    mesh_id = mesh._target.mesh_id if isinstance(mesh, ActorMesh) else mesh.mesh_id
    why = "has no processes that this script has started; expected a mesh of its proc_mesh() or spawn_procs()"
    owner_for_old(mesh_id, mesh.name, why).show(setting, mesh_id, mesh._shape)


def start_mesh(spec: MeshSpec, hosts: Hosts) -> ProcMesh:
    """Start the processes that a checked request asks for. Raises as `proc_mesh`."""
    owner = owner_for_new()
    if spec.setup is not None:
        try:
            codec.encode(spec.setup)
        except codec.EncodeError as error:
            raise argument_refused(f"proc_mesh(setup=...): {error}", error.__cause__) from error.__cause__
    mesh_id = owner.spawn(spec, hosts)
    shape, name = Shape.from_extent(spec.extent), owner.name_of(mesh_id)
    return ProcMesh(mesh_id, name, shape, owner.address_of(mesh_id), spec.setup, driver=owner.driver)


def _dimensions_table(mesh: MeshTrait) -> str:
    """Return the dimensions of a mesh, for notebooks."""
    from meshrt.show.table import html_table  # start-up: for notebooks only

    return html_table(repr(mesh), ("dimension", "size"), mesh.sizes.items())


class HostMesh(Block, MeshTrait):
    """Hosts that processes can be started on. A context manager: its end stops what was started through it."""

    def __init__(
        self, spawn: Callable[[MeshSpec, Hosts], ProcMesh], shape: Shape, hosts: Hosts, names: tuple[str, ...] = ()
    ) -> None:
        self._spawn = spawn
        self._own_shape = shape
        self._hosts = hosts
        self._names = names
        self._started: list[ProcMesh] = []

    @property
    def _shape(self) -> Shape:
        return self._own_shape

    def _with_shape(self, shape: Shape) -> Self:
        known = dict(zip(self._own_shape.ndslice, self._names, strict=False))
        names = tuple(known[rank] for rank in shape.ndslice) if known else ()
        return type(self)(self._spawn, shape, self._hosts, names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts, in order; empty if they are not placed yet, or this process does not know them."""
        return self._names

    def spawn_procs(
        self,
        per_host: Mapping[str, int] | None = None,
        bootstrap: Callable[[], object] | None = None,
        name: str = "",
        *,
        env: EnvOption = None,
        preload: Iterable[str] = (),
        post_mortem: PostMortem = None,
        devices: Devices = "all",
        logs: str | None = None,
    ) -> ProcMesh:
        """Start processes on every host: ``this_host().spawn_procs(per_host={"gpus": 4})``.

        The dimensions of the mesh are those of the hosts, then those of ``per_host``.

        Args:
            per_host: Dimension to size; none means one process.
            bootstrap: As ``setup`` of `proc_mesh`.
            name, env, preload, post_mortem, devices, logs: As in `proc_mesh`.
        Raises:
            UsageError: A size, a name or an option is invalid, or a dimension is there twice.
            SpawnError: A host cannot hold so many processes, or is lost.
        """
        sizes = dict(per_host or {})
        twice = sorted(sizes.keys() & self.sizes.keys())
        if twice:
            raise UsageError(f"{twice[0]} is a dimension of the hosts already; give that of the processes another name")
        sizes = {**self.sizes, **sizes}
        spec = MeshSpec.make(name, sizes, env, bootstrap, preload, post_mortem, devices, logs=logs)
        mesh = self._spawn(spec, self._hosts._replace(members=tuple(self._own_shape.ndslice)))
        self._started = [*(other for other in self._started if not other._has_stopped()), mesh]
        return mesh

    def stop(self, grace: float = 5.0) -> Future[None]:
        """Stop every mesh that was started through this handle, all at once. See `ProcMesh.stop`.

        Returns a future; off an event loop it has been waited for already.
        """
        check_grace(grace)
        try:
            self._tell_failed(sys.exc_info()[1])
        finally:
            futures = self._begin_end(grace, "")
        return all_done(futures) if futures else done(owner_for_new().driver)

    def _begin_end(self, grace: float, why: str) -> list[Future[None]]:
        started, self._started = self._started, []
        futures, problems = [], []
        for mesh in started:
            try:
                futures.append(mesh._begin_stop(grace, why))
            except UsageError as error:  # the others are to end all the same
                problems.append(error)
        if not on_event_loop():
            for future in futures:
                future.get()
        if problems:
            raise problems[0]
        return futures

    def _tell_failed(self, error: BaseException | None) -> None:
        for mesh in self._started:
            mesh._tell_failed(error)

    def _leave(self, error: BaseException | None) -> None:
        for mesh in self._started:
            mesh._leave(error)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostMesh):
            return NotImplemented
        return (self._hosts, self._own_shape) == (other._hosts, other._own_shape)

    def __hash__(self) -> int:
        return hash((self._hosts.mesh_id, self._own_shape))

    def __repr__(self) -> str:
        if self._hosts == Hosts():
            return "<HostMesh of this host>"
        sizes = ", ".join(f"{label}={size}" for label, size in self.sizes.items())
        return f"<HostMesh {', '.join(self._names) or 'not placed yet'} ({sizes or 'one host'})>"

    _repr_html_ = _dimensions_table

    def __reduce__(self) -> tuple[object, ...]:
        if not self._hosts.mesh_id:
            raise TypeError("hosts of an engine cannot be sent; send the hosts of a mesh: mesh.hosts")
        hosts = Hosts(mesh_id=self._hosts.mesh_id)  # an engine stays in the script
        return HostMesh, (self._spawn, self._own_shape, hosts, self._names)


class ProcMesh(Block, MeshTrait):
    """A handle on processes. Slices are handles on some of them; the process that made the mesh owns it."""

    def __init__(
        self,
        mesh_id: str,
        name: str,
        shape: Shape,
        address: MeshAddress,
        setup: Setup,
        whole: Shape | None = None,
        *,
        driver: Driver | None = None,
    ) -> None:
        self._mesh_id = mesh_id
        self._name = name
        self._own_shape = shape
        self._whole = shape if whole is None else whole
        self._address = address
        self._setup = setup
        self._stopped: Future[None] | None = None
        #: Of the process that made the mesh, and None elsewhere: it is closed when all its meshes have ended.
        self._driver = driver

    @property
    def _shape(self) -> Shape:
        return self._own_shape

    def _with_shape(self, shape: Shape) -> Self:
        same = (self._address, self._setup, self._whole)
        return type(self)(self._mesh_id, self._name, shape, *same, driver=self._driver)

    @property
    def name(self) -> str:
        """The mesh's name."""
        return self._name

    @property
    def mesh_id(self) -> str:
        """The mesh's identity: unique, and the same for all its slices."""
        return self._mesh_id

    @property
    def hosts(self) -> HostMesh:
        """The hosts of the ranks in this view, as a mesh: processes can be started on them, or on a slice of them.

        Its dimension ``hosts`` is that of this mesh. In a mesh without it there is one host for each host agent.

        Raises:
            UsageError: There is no such dimension, and not as many ranks on each host.
        """
        shape = first_ranks(self._own_shape, self._address.host_of)
        names = tuple(about(self._mesh_id, rank)[0] for rank in shape.ndslice)
        return HostMesh(start_mesh, shape, Hosts(mesh_id=self._mesh_id), names)

    @property
    def initialized(self) -> Future[None]:
        """A future that is done when all processes of the mesh have been started; SpawnError if one failed to start."""
        return self._owner().initialized(self._mesh_id)

    @overload
    def spawn(self, name: str, cls: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Handle[A]: ...

    @overload
    def spawn(
        self,
        name: str,
        cls: type[A],
        /,
        *args: Any,
        max_restarts: int,
        on_restart: Callable[[Restart], object] | None = None,
        **kwargs: Any,
    ) -> Handle[A]: ...

    # A checker gives these two options, too, to the constructor: `P.kwargs` allows no other keywords beside it.
    def spawn(  # type: ignore[misc]
        self,
        name: str,
        cls: Any,
        /,
        *args: object,
        max_restarts: int = 0,
        on_restart: Callable[[Restart], object] | None = None,
        **kwargs: object,
    ) -> Any:
        """Build an actor on every rank and return its mesh at once.

        Calls made before ``__init__`` has run wait for it. ``.get()``, ``await`` or ``.initialized`` say when it has.

        Args:
            name: Letters, digits, ``_`` and ``-``; one actor of a name at a time: the calls of a second one are refused
                with UsageError, as is its ``initialized``.
            cls: A subclass of `Actor`.
            max_restarts: How often each rank whose process has ended is started again, with its actors; not within 5 s
                of its last restart, and only if all its actors are to be. Calls that were on their way fail.
            on_restart: Called with a `Restart` when the actor has been built again; on a thread of its own.
        Raises:
            UsageError: The name or the class is invalid.
            TypeError: The arguments do not fit ``cls.__init__``.
            ArgumentNotSerializable: The class or an argument cannot be pickled.
        """
        cls = replacement_of(cls)
        check_spawned(name, cls, args, kwargs)
        address, shape = self._address, self._own_shape
        target = Target(self._mesh_id, name, address, shape, self._whole, about, spawn_id=os.urandom(8))
        packed = pack_init(target, cls, args, kwargs, self._setup)
        if check_max_restarts(max_restarts):
            check_restartable(target)
            Rebuilding(target, cls.__qualname__, packed, on_restart).begin(max_restarts)
        elif on_restart is not None:
            raise UsageError("on_restart= is called after restarts; use it together with max_restarts=")
        else:
            end_rebuilding(target)
        call = current_call()
        if call is not None:
            call.instance.has_made = True
        current_runtime().tree.actor_spawned(self._mesh_id, name, self._own_shape)
        init = send_init(target, cls.__qualname__, packed)
        init.setup = self._setup
        return ActorMesh(cls, target, init)

    def stop(self, grace: float = 5.0) -> Future[None]:
        """End the processes: messages sent before are served for up to ``grace`` seconds, then they are killed.

        Returns a future; off an event loop it has been waited for already. A second call is allowed. In a ``finally``,
        the failure behind the current error is collected first, as a block does: for about a second at most.

        Raises:
            UsageError: The grace is invalid; this process does not own the mesh, or this is a slice of it.
        """
        check_grace(grace)
        try:
            self._tell_failed(sys.exc_info()[1])
        finally:
            future = self._begin_stop(grace)
        if not on_event_loop():
            future.get()
        return future

    def _begin_stop(self, grace: float, why: str = "") -> Future[None]:
        # Kept: in a long program the owner forgets a mesh some time after its end.
        if self._driver is not None and self._driver.closed:  # by `shutdown_context`: there is no owner any more
            self._stopped = done(self._driver)
        elif self._stopped is None or not self._stopped.finished:
            owner = self._owner()
            owner.check_whole(self._mesh_id, self._own_shape)
            self._stopped = owner.stop(self._mesh_id, grace, why)
        return self._stopped

    def _has_stopped(self) -> bool:
        if self._driver is not None and self._driver.closed:
            return True
        return self._stopped is not None and self._stopped.finished

    def _owner(self) -> MeshOwner:
        return owner_for_old(self._mesh_id, self._name)

    def _begin_end(self, grace: float, why: str) -> list[Future[None]]:
        return [self._begin_stop(grace, why)]

    def _tell_failed(self, error: BaseException | None) -> None:
        """The block ends: the failure behind its error is collected while the ranks still exist."""
        if error is not None and not self._has_stopped():
            self._owner().failed(self._mesh_id, error)

    def _leave(self, error: BaseException | None) -> None:
        if error is not None:
            self._tell_failed(error)
        elif not self._has_stopped():
            self._owner().left(self._mesh_id)

    def get(self, timeout: float | None = None) -> Self:
        """Wait until every process has been started and return this mesh."""
        self.initialized.get(timeout)
        return self

    def __await__(self) -> Generator[object, None, Self]:
        yield from self.initialized.__await__()
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return ProcMesh, (self._mesh_id, self._name, self._own_shape, self._address, self._setup, self._whole)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcMesh):
            return NotImplemented
        return (self._mesh_id, self._own_shape) == (other._mesh_id, other._own_shape)

    def __hash__(self) -> int:
        return hash((self._mesh_id, self._own_shape))

    def __repr__(self) -> str:
        return f"<ProcMesh {self._name} on {self._own_shape}>"

    _repr_html_ = _dimensions_table


def check_spawned(name: str, cls: type[Actor], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Check what an actor is to be built from. Raises as `ProcMesh.spawn`."""
    check_name("an actor", name)
    given: object = cls
    if not (isinstance(given, type) and issubclass(given, Actor)):
        raise UsageError(f"{getattr(given, '__name__', given)!r} must be a subclass of meshrt.Actor to be spawned")
    try:
        inspect.signature(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}() {error}") from None
    _ship_if_needed(cls)


def _ship_if_needed(cls: type) -> None:
    """Pickle the module of ``cls`` by value when a rank could not import it (a test module, a notebook's helper)."""
    module = sys.modules.get(cls.__module__)
    if module is None or module.__name__ == "__main__":
        return
    try:
        spec = importlib.util.find_spec(module.__name__)
    except (ImportError, ValueError):
        spec = None
    own = getattr(module, "__file__", None)
    if spec is None or (own is not None and spec.origin is not None and spec.origin != own):
        codec.ship_by_value(module)

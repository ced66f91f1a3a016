"""Actors in the process of the test, whose ranks are threads; and other classes in place of some."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Self, TypeVar, cast

from meshrt.actor.actor import Actor
from meshrt.actor.replacing import replace, replaced
from meshrt.errors import MeshError, UsageError
from meshrt.mesh.future import Future, Settled, done
from meshrt.mesh.own_ranks import OwnRanks
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.mesh.program import running_root, start_root
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Shape
from meshrt.testing.clock import current_clock

if TYPE_CHECKING:
    from meshrt.mesh.handle import ActorMesh

__all__ = ["ActorPatch", "local", "local_mesh", "patch_actor"]

A = TypeVar("A", bound=Actor)
C = TypeVar("C", bound=type)
T = TypeVar("T")
P = ParamSpec("P")


@contextlib.contextmanager
def local_mesh(
    *, name: str = "local", setup: Callable[[], object] | None = None, grace: float = 5.0, **sizes: int
) -> Iterator[ProcMesh]:
    """A mesh whose ranks are threads of this process: ``with local_mesh(dp=2, tp=2) as mesh``.

    Actors are spawned and called as on processes: messages in the same order, arguments and results as copies, errors
    with the rank. Memory, signals, the environment and modules are those of this process.

    Args:
        name: As that of `meshrt.proc_mesh`.
        setup: Runs once for each rank before its first actor is built.
        grace: Seconds that calls have to end at the end of the block.
        **sizes: Dimension to size; none: one rank.
    Raises:
        UsageError: A size is invalid.
        MeshError: At the end of the block: an actor has not ended within the grace, and its thread still runs; or a
            ``broadcast``, a task or a thread has raised, and no caller was told.
    """
    spec = MeshSpec.make(name, sizes or {"ranks": 1}, None, setup, ())
    shape = Shape.from_extent(spec.extent) if sizes else Shape.unity()
    root = start_root()
    clock = current_clock()
    ranks = OwnRanks(root, len(shape)) if clock is None else clock._make_ranks(root, len(shape))
    before = tuple(root.services.unseen)
    mesh = _LocalMesh(ranks.mesh_id, name, shape, ranks.address, setup)
    mesh._ranks = ranks
    mesh._end_ranks = ranks.stop if clock is None else functools.partial(clock._stop_ranks, ranks)
    try:
        yield mesh
    finally:
        running = mesh._end_ranks(grace)
    if running:
        raise _not_ended(running, grace)
    if running_root() is not root:
        return  # the block has ended the program, which has reported what failed in it
    ranks.settle()
    report = root.script.take_unseen(before)
    if report:
        raise MeshError(f"actors of the block have failed, and no caller received the errors:\n{report}")


class _LocalMesh(ProcMesh):
    """A mesh that is stopped here, where its ranks are."""

    _ranks: OwnRanks
    #: Stops them within a grace (seconds), and returns the actors that still run.
    _end_ranks: Callable[[float], list[str]]

    @property
    def initialized(self) -> Future[None]:
        """Done: its ranks are there from the beginning."""
        return done(start_root().runtime.driver)

    def _with_shape(self, shape: Shape) -> Self:
        view = super()._with_shape(shape)
        view._ranks, view._end_ranks = self._ranks, self._end_ranks
        return view

    def _begin_stop(self, grace: float, why: str = "") -> Future[None]:
        if len(self._own_shape) != len(self._whole):
            raise UsageError(
                f"{self._name} can only be stopped as a whole; this is a slice ({self._own_shape} of {self._whole})"
            )
        if self._stopped is None:
            stopped: Settled[None] = Settled(start_root().runtime.driver, "the end of a local mesh")
            self._stopped = stopped
            threading.Thread(target=self._end, args=(grace, stopped), name="meshrt-stop", daemon=True).start()
        return self._stopped

    def _end(self, grace: float, stopped: Settled[None]) -> None:
        try:
            running = self._end_ranks(grace)
        except BaseException as error:
            stopped.reject(error)
            raise
        if running:
            stopped.reject(_not_ended(running, grace))
        else:
            stopped.resolve(None)

    def _tell_failed(self, error: BaseException | None) -> None:
        """Do nothing: no process has anything to tell."""

    def _leave(self, error: BaseException | None) -> None:
        """As `_tell_failed`."""


def _not_ended(running: Sequence[str], grace: float) -> MeshError:
    return MeshError(f"actors whose calls have not ended within {grace:g} s, on threads: {', '.join(running)}")


@contextlib.contextmanager
def local(cls: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[ActorMesh[A]]:
    """One actor in this process, built and ready: ``with local(Counter, 10) as counter``. See `local_mesh`.

    Raises:
        ActorError: Its ``__init__`` has raised.
        UsageError, TypeError: As `ProcMesh.spawn`.
    """
    with local_mesh() as mesh:
        given: Any = cls
        actor: ActorMesh[A] = mesh.spawn(given.__name__.lower(), given, *args, **kwargs).get()
        yield actor


def patch_actor(original: type, replacement: C) -> ActorPatch[C]:
    """Spawn ``replacement`` instead of ``original``, in this process and in actors that it spawns meanwhile.

    A context manager, for ``with`` and ``async with``, whose value is ``replacement``; and a decorator of functions,
    plain or ``async def``. Blocks may be nested, and the inner one counts. Actors that run already stay what they are.

    Raises:
        UsageError: One of them is not a subclass of `Actor`; or what is decorated is not a function, or a generator.
    """
    given: tuple[Any, ...] = original, replacement
    for cls in given:
        if not (isinstance(cls, type) and issubclass(cls, Actor)):
            raise UsageError(f"patch_actor: {getattr(cls, '__name__', cls)!r} is not a subclass of meshrt.Actor")
    return ActorPatch(original, replacement)


class ActorPatch(Generic[C]):
    """See `patch_actor`."""

    #: Those whose blocks run, the inner one last; and what was replaced before the first one.
    _running: ClassVar[list[ActorPatch[Any]]] = []
    _before: ClassVar[dict[type, type]] = {}

    def __init__(self, original: type, replacement: C) -> None:
        self._original = original
        self._replacement = replacement

    def _apply(self) -> None:
        replace({**self._before, **{each._original: each._replacement for each in self._running}})

    def __enter__(self) -> C:
        if not self._running:
            ActorPatch._before = replaced()
        self._running.append(self)
        self._apply()
        return self._replacement

    def __exit__(self, *_error: object) -> None:
        # Blocks of tasks may end in any order.
        del self._running[~self._running[::-1].index(self)]
        self._apply()

    async def __aenter__(self) -> C:
        return self.__enter__()

    async def __aexit__(self, *_error: object) -> None:
        self.__exit__()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function, in whose calls the class is replaced."""
        if isinstance(function, type) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                f"patch_actor cannot decorate {getattr(function, '__qualname__', function)}, as it is not a function "
                "that returns when it has ended: expected `with patch_actor(...):` in it"
            )
        decorated: Any = function

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def run_async(*args: P.args, **kwargs: P.kwargs) -> object:
            with self:
                return await decorated(*args, **kwargs)

        return cast("Callable[P, T]", run_async if inspect.iscoroutinefunction(function) else run)

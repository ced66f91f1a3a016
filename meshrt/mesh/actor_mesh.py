"""``ActorMesh``: an actor on every rank of a mesh, and the adverbs that call its endpoints."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, Self, TypeVar, overload

from meshrt.actor.endpoint import EndpointSpec, endpoints_of, explain_missing
from meshrt.errors import UsageError
from meshrt.mesh.block import Block, check_grace
from meshrt.mesh.by_rank import arguments_by_rank, first_block, send_block
from meshrt.mesh.call import MeshCall, OneCall, StreamCall
from meshrt.mesh.future import Future
from meshrt.mesh.room import positions_with_room, wait_ready
from meshrt.mesh.sending import C, broadcast, send_call, send_rows, send_stop
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import MeshTrait, Shape
from meshrt.transport.driver import Driver
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.transport.threads import on_event_loop
from meshrt.wire.addresses import MeshAddress

if TYPE_CHECKING:
    from meshrt.mesh.call_options import CallOptions

__all__ = ["ActorMesh", "Endpoint"]

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class Endpoint(Generic[P, R]):
    """One endpoint of an actor mesh. Arguments are checked and pickled in the call itself, then it returns.

    Where a rank does not take its messages, a call waits until it does, or until little is queued. On an event loop,
    which must not wait, it raises MeshBusy when much is queued: see `wait_ready`.
    """

    __slots__ = ("_options", "_spec", "_target")

    def __init__(self, target: Target, spec: EndpointSpec, options: CallOptions | None = None) -> None:
        self._target = target
        self._spec = spec
        self._options = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        """Call it on every rank.

        Returns:
            A future of a `ValueMesh` with the shape of this mesh. It fails with the first rank that fails.
        Raises:
            TypeError: The arguments do not fit the endpoint.
            ArgumentNotSerializable: An argument cannot be pickled.
            MeshBusy: On an event loop, and too much waits already to be sent to a rank. It was sent to no rank.
        """
        future: MeshCall = self._send(self._target, args, kwargs, MeshCall)
        return future

    def call_one(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call it on the only rank of this mesh. Raises ValueError if there are more; else as `call`."""
        count = len(self._target.shape)
        if count != 1:
            raise ValueError(
                f"call_one requires exactly 1 rank, but {self._target.name} has {count} ({self._target.shape}): "
                "slice it to one, or use call() or choose()"
            )
        future: OneCall = self._send(self._target, args, kwargs, OneCall)
        return future

    def choose(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call it on one rank, chosen at random among those that do not raise MeshBusy; otherwise like `call`."""
        driver = self._target.runtime().driver
        if driver.full:
            position = random.choice(positions_with_room(self._target, driver))
        else:
            position = random.randrange(len(self._target.shape))
        target = self._target.one(position)
        future: OneCall = self._send(target, args, kwargs, OneCall)
        return future

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> StreamCall[R]:
        """Call it on every rank; iterate over futures in order of arrival. Else as `call`."""
        stream: StreamCall[R] = self._send(self._target, args, kwargs, StreamCall)
        return stream

    def map(self, *columns: Iterable[object], **kwargs: object) -> Future[ValueMesh[R]]:
        """Call it on every rank, with arguments of its own for each: ``trainers.step.map(batches)``.

        Args:
            *columns: For each positional argument the values of all ranks: in rank order, or a `ValueMesh`.
            **kwargs: The same for all ranks.
        Returns:
            As `call`.
        Raises:
            UsageError: There is not one value for each rank.
            TypeError, ArgumentNotSerializable, MeshBusy: As `call`. It was sent to no rank.
        """
        rows = arguments_by_rank(self._target, self._spec.name, columns)
        for row in rows:
            self._spec.check(row, kwargs)
        future: MeshCall
        if self._options is None:
            future = send_rows(self._target, self._spec.name, rows, kwargs, MeshCall)
        else:
            future = self._options.send(send_rows, self._target, self._spec.name, rows, kwargs, MeshCall)
        return future

    def reduce(self, function: Callable[[R, R], R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call it on every rank and combine the values on the ranks: ``trainers.gradient.reduce(numpy.add).get()``.

        For large values: each rank sends one, to another rank, and one value comes back, after log2(ranks) steps.
        `ValueMesh.reduce` has all values sent to the caller.

        Args:
            function: ``function(left, right)`` combines two values. It runs on the ranks, in their order.
            *args, **kwargs: Those of the endpoint. Ranks pass them on to each other.
        Returns:
            A future of the combined value. It fails with the error of the first rank; where another rank has failed,
            that error has the other one as its ``exception``.
        Raises:
            TypeError, ArgumentNotSerializable, MeshBusy: As `call`.
        """
        self._spec.check(args, kwargs)
        if self._spec.is_ported:
            raise UsageError(f"{self._spec.name}() answers by a port: its values cannot be reduced on the ranks")
        block = first_block(self._target, self._spec.name, function)
        if self._options is None:
            return send_block(block, args, kwargs, self._target)

        def send(*call: Any) -> OneCall:
            return send_block(block, call[2], call[3], self._target)

        future: OneCall = self._options.send(send, self._target, self._spec.name, args, kwargs, OneCall)
        return future

    def options(self, *, timeout: float | None = None, limit: int | None = None) -> Endpoint[P, R]:
        """Return this endpoint with options for all calls that are made through the object that is returned.

        Args:
            timeout: Seconds, > 0. A call that is not answered by then is cancelled and fails with CallTimeout. Time
                during which a user holds a rank at a breakpoint does not count.
            limit: How many calls may be unanswered at a time. A thread waits in the next call; on an event loop, it
                raises LimitReached: ``await endpoint.wait_ready()`` before it waits.
        Raises:
            UsageError: One of them is invalid.
        """
        from meshrt.mesh.call_options import CallOptions  # start-up: few programs need it

        return Endpoint(self._target, self._spec, CallOptions(timeout, limit))

    def _send(
        self,
        target: Target,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        kind: Callable[[Driver, Target, str], C],
    ) -> C:
        self._spec.check(args, kwargs)
        if self._options is None:
            return send_call(target, self._spec.name, args, kwargs, kind)
        return self._options.send(send_call, target, self._spec.name, args, kwargs, kind)

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call it on every rank without answers; an exception is reported on the program's terminal."""
        self._spec.check(args, kwargs)
        if self._options is not None:
            raise UsageError(
                f"{self._target.name}.{self._spec.name}.options(...).broadcast(): a broadcast is not answered, so "
                "no option applies to it; use call()"
            )
        broadcast(self._target, self._spec.name, args, kwargs)

    async def wait_ready(self) -> None:
        """Wait, on an event loop, until all ranks of this mesh take messages; on a thread, the call itself waits.

        The call behind it, without an ``await`` between the two, does not raise MeshBusy. Tasks are let through in the
        order in which they came.
        """
        if self._options is not None:
            await self._options.wait_ready(self._target.runtime().driver)
        await wait_ready(self._target, self._spec.name)

    if not TYPE_CHECKING:  # for type checkers it cannot be called

        def __call__(self, *args: object, **kwargs: object) -> Never:
            name = f"{self._target.name}.{self._spec.name}"
            raise TypeError(
                f"{name} is an endpoint of a mesh: use {name}.call(...), .call_one(...), .choose(...), .stream(...) "
                "or .broadcast(...)"
            )

    def __repr__(self) -> str:
        return f"<endpoint {self._target.name}.{self._spec} on {self._target.shape}>"


class ActorMesh(Block, MeshTrait, Generic[A]):
    """A handle on actors: slice it, call endpoints on it, send it as an argument, wait for ``__init__`` with `get`."""

    def __init__(self, cls: type[A], target: Target, initialized: Future[None] | None) -> None:
        self._class = cls
        self._target = target
        self._init = initialized
        for name in endpoints_of(cls).keys() & _METHODS:
            self.__dict__[name] = _Method(
                getattr(self, name), f"{target.name}.{name}", f"{target.name}.endpoint({name!r})"
            )

    @property
    def _shape(self) -> Shape:
        return self._target.shape

    def _with_shape(self, shape: Shape) -> Self:
        return type(self)(self._class, self._target.view_of(shape), self._init)

    @property
    def name(self) -> str:
        """The name given to ``spawn``."""
        return self._target.name

    @property
    def initialized(self) -> Future[None]:
        """Done when every ``__init__`` has run, or failed as one did. Raises UsageError on a received handle."""
        if self._init is None:
            raise UsageError(f"{self.name} was received from another process: only its owner waits for its __init__")
        return self._init

    def get(self, timeout: float | None = None) -> Self:
        """Wait until every ``__init__`` has run and return this mesh, or raise what one of them raised."""
        if self._init is not None:
            self._init.get(timeout)
        return self

    def __await__(self) -> Generator[object, None, Self]:
        if self._init is not None:
            yield from self._init.__await__()
        return self

    def stop(self, grace: float | None = None) -> Future[None]:
        """End the actor on these ranks: messages sent before are served, ``__cleanup__`` runs, later calls fail.

        What the actor has made has five seconds to end then.

        Args:
            grace: Seconds for what was sent before. A call that still runs then is ended: where it awaits it is
                cancelled, and on the main thread of its rank (that of the first actor) it is interrupted. It fails with
                MeshStopped, as do those that wait behind it. None: calls run for as long as they take, those of
                concurrent endpoints for five seconds.
        Returns:
            A future; off an event loop it has been waited for already. CallTimeout names ranks that have not ended the
            actor five seconds after the grace: what runs there cannot be interrupted.
        Raises:
            UsageError: The grace is invalid; the actor belongs to another program.
        """
        if grace is not None:
            check_grace(grace)
        future = send_stop(self._target, grace=grace)
        if not on_event_loop():
            future.get()
        return future

    def _begin_end(self, _grace: float, why: str) -> list[Future[None]]:
        return [send_stop(self._target, why)]

    @overload
    def endpoint(self, which: str) -> Endpoint[..., Any]: ...

    @overload
    def endpoint(self, which: Endpoint[P, R]) -> Endpoint[P, R]: ...

    def endpoint(self, which: Any) -> Endpoint[..., Any]:
        """Return an endpoint by name, also if the mesh has an attribute of that name, such as ``get``.

        Args:
            which: Its name; or, with the types of the endpoint, the method of the class: ``store.endpoint(Store.get)``.
        Raises:
            AttributeError: The actor has no endpoint of this name, and nothing similar.
            NotAnEndpointError: It is a method, or data, of the actor.
        """
        name = getattr(which, "__name__", str(which))
        spec = endpoints_of(self._class).get(name)
        if spec is None:
            raise explain_missing(self._class, name)
        return Endpoint(self._target.urgent() if spec.is_urgent else self._target, spec)

    if not TYPE_CHECKING:  # type checkers know the endpoints of a class: see `meshrt.mesh.typed`

        def __getattr__(self, name: str) -> Endpoint[..., Any]:
            if name.startswith("_"):
                raise AttributeError(name)
            found = self.__dict__[name] = self.endpoint(name)
            return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *endpoints_of(self._class)})

    def __reduce__(self) -> tuple[object, ...]:
        target = self._target
        return _received, (
            self._class,
            target.mesh_id,
            target.name,
            target.address,
            target.shape,
            target.whole,
            _program_of(target),
            target.spawn_id,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ActorMesh):
            return NotImplemented
        mine, its = self._target, other._target
        return (mine.mesh_id, mine.name, mine.shape) == (its.mesh_id, its.name, its.shape)

    def __hash__(self) -> int:
        return hash((self._target.mesh_id, self._target.name, self._target.shape))

    def __repr__(self) -> str:
        return f"<ActorMesh {self.name}: {self._class.__name__} on {self._shape}>"

    def _repr_html_(self) -> str:
        """Its endpoints, for notebooks."""
        from meshrt.show.table import html_table  # start-up: for notebooks only

        found = endpoints_of(self._class)
        rows = [(spec, _first_line(self._class, name)) for name, spec in found.items()]
        return html_table(repr(self), ("endpoint", "what it does"), rows)


#: The methods of every mesh.
_METHODS = frozenset(name for name in dir(ActorMesh) if name[0] != "_" and inspect.isfunction(getattr(ActorMesh, name)))


class _Method:
    """A method of a mesh whose actor has an endpoint of the same name."""

    def __init__(self, method: Callable[..., object], name: str, endpoint: str) -> None:
        self._method, self._name, self._endpoint = method, name, endpoint
        self.__doc__ = method.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._method(*args, **kwargs)

    def __getattr__(self, name: str) -> object:
        if not name.startswith("_") and hasattr(Endpoint, name):
            raise AttributeError(
                f"{self._name} is a method of the mesh; the endpoint of this name is {self._endpoint}: expected "
                f"{self._endpoint}.{name}",
                name=name,
                obj=self,
            )
        return getattr(self._method, name)


def _first_line(cls: type, name: str) -> str:
    return (inspect.getdoc(getattr(cls, name)) or "").partition("\n")[0]


def _unknown(_mesh_id: str, _rank: int) -> tuple[str, int]:
    return "", 0


def _program_of(target: Target) -> str:
    """Return the id of the program of an actor; "": there is none in this process any more."""
    if target.program is not None:
        return target.program.run_id
    return current_runtime().program_id if has_runtime() else ""


def _received(
    cls: type[A],
    mesh_id: str,
    name: str,
    address: MeshAddress,
    shape: Shape,
    whole: Shape,
    run_id: str,
    spawn_id: bytes,
) -> ActorMesh[A]:
    program = None
    if run_id and not (has_runtime() and current_runtime().program_id == run_id):
        from meshrt.mesh.foreign import foreign_program  # start-up: for handles of other programs only

        program = foreign_program(run_id, os.fsdecode(address.hosts[0].directory))
    return ActorMesh(cls, Target(mesh_id, name, address, shape, whole, _unknown, program, spawn_id=spawn_id), None)

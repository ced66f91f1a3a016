"""``ActorMesh``: an actor on every rank of a mesh, and the adverbs that call its endpoints."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, Generic, Never, Self, TypeVar

from meshrt.actor.endpoint import EndpointSpec, endpoints_of, explain_missing
from meshrt.actor.errors import why_ended
from meshrt.errors import UsageError
from meshrt.mesh.call import MeshCall, OneCall, StreamCall, broadcast, send_call, send_stop
from meshrt.mesh.future import Future
from meshrt.mesh.room import positions_with_room, wait_ready
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import MeshTrait, Shape
from meshrt.transport.process import current_runtime
from meshrt.transport.threads import on_event_loop
from meshrt.wire.addresses import MeshAddress

__all__ = ["ActorMesh", "Endpoint", "reserved_names"]

A = TypeVar("A")


class Endpoint:
    """One endpoint of an actor mesh. Arguments are checked and pickled in the call itself, then it returns.

    Where a rank does not take its messages, a call waits until it does, or until little is queued. On an event loop,
    which must not wait, it raises MeshBusy when much is queued: see `wait_ready`.
    """

    __slots__ = ("_spec", "_target")

    def __init__(self, target: Target, spec: EndpointSpec) -> None:
        self._target = target
        self._spec = spec

    def call(self, *args: object, **kwargs: object) -> Future[ValueMesh[Any]]:
        """Call it on every rank.

        Returns:
            A future of a `ValueMesh` with the shape of this mesh. It fails with the first rank that fails.
        Raises:
            TypeError: The arguments do not fit the endpoint.
            ArgumentNotSerializable: An argument cannot be pickled.
            MeshBusy: On an event loop, and too much waits already to be sent to a rank. It was sent to no rank.
        """
        self._spec.check(args, kwargs)
        future: MeshCall = send_call(self._target, self._spec.name, args, kwargs, MeshCall)
        return future

    def call_one(self, *args: object, **kwargs: object) -> Future[Any]:
        """Call it on the only rank of this mesh. Raises ValueError if there are more; else as `call`."""
        self._spec.check(args, kwargs)
        count = len(self._target.shape)
        if count != 1:
            raise ValueError(
                f"call_one requires exactly 1 rank, but {self._target.name} has {count} ({self._target.shape}): "
                "slice it to one, or use call() or choose()"
            )
        future: OneCall = send_call(self._target, self._spec.name, args, kwargs, OneCall)
        return future

    def choose(self, *args: object, **kwargs: object) -> Future[Any]:
        """Call it on one rank, chosen at random among those that do not raise MeshBusy; else as `call`."""
        self._spec.check(args, kwargs)
        driver = current_runtime().driver
        if driver.full:
            position = random.choice(positions_with_room(self._target, driver))
        else:
            position = random.randrange(len(self._target.shape))
        target = self._target.one(position)
        future: OneCall = send_call(target, self._spec.name, args, kwargs, OneCall)
        return future

    def stream(self, *args: object, **kwargs: object) -> StreamCall[Any]:
        """Call it on every rank; iterate over futures in order of arrival. Else as `call`."""
        self._spec.check(args, kwargs)
        stream: StreamCall[Any] = send_call(self._target, self._spec.name, args, kwargs, StreamCall)
        return stream

    def broadcast(self, *args: object, **kwargs: object) -> None:
        """Call it on every rank without answers; an exception is reported on the program's terminal."""
        self._spec.check(args, kwargs)
        broadcast(self._target, self._spec.name, args, kwargs)

    async def wait_ready(self) -> None:
        """Wait, on an event loop, while a rank of this mesh does not take its messages, as a thread waits in a call.

        The call behind it, without an ``await`` between the two, does not raise MeshBusy. Tasks are let through in the
        order in which they came.
        """
        await wait_ready(self._target, self._spec.name)

    def __call__(self, *args: object, **kwargs: object) -> Never:
        name = f"{self._target.name}.{self._spec.name}"
        raise TypeError(
            f"{name} is an endpoint of a mesh: use {name}.call(...), .call_one(...), .choose(...), .stream(...) "
            "or .broadcast(...)"
        )

    def __repr__(self) -> str:
        return f"<endpoint {self._target.name}.{self._spec.name}{self._spec.signature} on {self._target.shape}>"


class ActorMesh(MeshTrait, Generic[A]):
    """A handle: slice it, call endpoints on it, send it as an argument, get it when every ``__init__`` has run."""

    def __init__(self, cls: type[A], target: Target, initialized: Future[None] | None) -> None:
        self._class = cls
        self._target = target
        self._init = initialized

    @property
    def _shape(self) -> Shape:
        return self._target.shape

    def _with_shape(self, shape: Shape) -> Self:
        target = self._target
        view = Target(target.mesh_id, target.name, target.address, shape, target.whole, target._about)
        return type(self)(self._class, view, self._init)

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

    def stop(self) -> Future[None]:
        """End the actor on these ranks: after what was sent before, ``__cleanup__`` runs, later calls fail.

        Returns a future; off an event loop it has been waited for already.
        """
        future = send_stop(self._target)
        if not on_event_loop():
            future.get()
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _rest: object) -> None:
        send_stop(self._target, why_ended(error)).get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: type[BaseException] | None, error: BaseException | None, _rest: object) -> None:
        await send_stop(self._target, why_ended(error))

    def __getattr__(self, name: str) -> Endpoint:
        if name.startswith("_"):
            raise AttributeError(name)
        spec = endpoints_of(self._class).get(name)
        if spec is None:
            raise explain_missing(self._class, name)
        found = self.__dict__[name] = Endpoint(self._target, spec)
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


def _unknown(_mesh_id: str, _rank: int) -> tuple[str, int]:
    return "", 0


def _received(cls: type[A], mesh_id: str, name: str, address: MeshAddress, shape: Shape, whole: Shape) -> ActorMesh[A]:
    return ActorMesh(cls, Target(mesh_id, name, address, shape, whole, _unknown), None)


def reserved_names() -> frozenset[str]:
    """Return the names that no endpoint may have, because a mesh has them."""
    return frozenset(name for name in dir(ActorMesh) if not name.startswith("_"))

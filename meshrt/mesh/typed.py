"""What type checkers see of actors and of their meshes; docs/design.md says why. At run time these are others' names.

For them a mesh is the actor's class: `ActorMesh[Trainer]` is ``type[Trainer]``. An endpoint that is read from the class
is an `Endpoint`; on ``self``, inside the actor, it is the method. What every mesh has comes from the class's metaclass.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from meshrt.actor import actor
from meshrt.actor import endpoint as decorators
from meshrt.mesh.actor_mesh import ActorMesh as RuntimeMesh
from meshrt.mesh.actor_mesh import Endpoint
from meshrt.mesh.handle import ActorMesh
from meshrt.mesh.ports import Port

__all__ = ["Actor", "ActorMesh", "EndpointMethod", "concurrent_endpoint", "endpoint"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
#: What the method is inside the actor. Covariant: an endpoint of a subclass may accept more arguments.
M_co = TypeVar("M_co", covariant=True)

if TYPE_CHECKING:

    class MeshOfActors(RuntimeMesh[Any], ABCMeta):
        """The metaclass of actors: their mesh has the attributes of the runtime's ``ActorMesh``."""

    class Actor(actor.Actor, metaclass=MeshOfActors):
        """Subclass it, mark methods with ``@endpoint``, and spawn it on a mesh: one instance per rank."""

else:
    Actor = actor.Actor


class Method(Protocol[P, R_co]):
    """A method with ``self``. By this name: mypy could not tell it from a key of ``**kwargs`` otherwise."""

    def __call__(_, self: Any, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class EndpointMethod(Generic[M_co]):
    """What ``@endpoint`` makes of a method."""

    @overload
    def __get__(
        self: EndpointMethod[Callable[P, Coroutine[Any, Any, R]]], instance: None, owner: type
    ) -> Endpoint[P, R]: ...

    @overload
    def __get__(self: EndpointMethod[Callable[P, R]], instance: None, owner: type) -> Endpoint[P, R]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> M_co: ...

    def __get__(self, instance: object, owner: type) -> object: ...


class EndpointDecorator(Protocol):
    """``@endpoint``, with and without parentheses."""

    @overload
    def __call__(self, method: Method[P, R], /) -> EndpointMethod[Callable[P, R]]: ...

    @overload
    def __call__(self, method: Callable[Concatenate[Any, P], R], /) -> EndpointMethod[Callable[P, R]]: ...

    @overload
    def __call__(self, method: None = None, /, *, urgent: bool = False) -> EndpointDecorator: ...

    @overload
    def __call__(
        self, method: None = None, /, *, urgent: bool = False, explicit_response_port: Literal[True]
    ) -> PortedDecorator: ...


class PortedDecorator(Protocol):
    """``@endpoint(explicit_response_port=True)``: a call returns what its port is a port of."""

    def __call__(self, method: Callable[Concatenate[Any, Port[R], P], object], /) -> EndpointMethod[Callable[P, R]]: ...


class ConcurrentDecorator(Protocol):
    """``@concurrent_endpoint``, with and without parentheses."""

    @overload
    def __call__(
        self, method: Method[P, Coroutine[Any, Any, R]], /
    ) -> EndpointMethod[Callable[P, Coroutine[Any, Any, R]]]: ...

    @overload
    def __call__(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> EndpointMethod[Callable[P, Coroutine[Any, Any, R]]]: ...

    @overload
    def __call__(self, method: None = None, /) -> ConcurrentDecorator: ...

    @overload
    def __call__(self, method: None = None, /, *, explicit_response_port: Literal[True]) -> PortedTaskDecorator: ...


class PortedTaskDecorator(Protocol):
    """``@concurrent_endpoint(explicit_response_port=True)``: as `PortedDecorator`."""

    def __call__(
        self, method: Callable[Concatenate[Any, Port[R], P], Coroutine[Any, Any, object]], /
    ) -> EndpointMethod[Callable[P, R]]: ...


_endpoint: Any = decorators.endpoint
_concurrent: Any = decorators.concurrent_endpoint

endpoint: EndpointDecorator = _endpoint
"""Mark a method, sync or async, as callable through a mesh. Inside the actor it stays an ordinary method."""

concurrent_endpoint: ConcurrentDecorator = _concurrent
"""Mark an ``async def`` method as callable through a mesh, concurrently with the actor's other calls."""

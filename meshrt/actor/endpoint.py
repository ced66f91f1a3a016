"""``@endpoint`` and ``@concurrent_endpoint``: which methods of an actor class can be called through a mesh."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from meshrt.errors import InvalidEndpoint, NotAnEndpointError

__all__ = ["EndpointSpec", "concurrent_endpoint", "endpoint", "endpoints_of", "explain_missing"]

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__meshrt_endpoint__"
_CONCURRENT = "concurrent"
_URGENT = "__meshrt_urgent__"
_PORTED = "__meshrt_ported__"


@overload
def endpoint(method: F) -> F: ...


@overload
def endpoint(
    method: None = None, *, urgent: bool = False, explicit_response_port: bool = False
) -> Callable[[F], F]: ...


def endpoint(
    method: F | None = None, *, urgent: bool = False, explicit_response_port: bool = False
) -> F | Callable[[F], F]:
    """Mark a method, sync or async, as callable through a mesh.

    Inside the actor it stays an ordinary method. Both kinds may be mixed in one class.

    Args:
        urgent: Its calls are served before all others that wait for the actor, also those that the same caller has sent
            before: for endpoints that control, such as ``pause`` or ``status``. Among each other they keep their order.
        explicit_response_port: Its first argument behind ``self`` is a `Port`, and what that is sent is the answer of
            the call: during the call or later, from any thread. What the method returns is ignored.

    Raises:
        InvalidEndpoint: The decorated object is not a function.
    """
    if method is None:
        return functools.partial(endpoint, urgent=urgent, explicit_response_port=explicit_response_port)
    if not inspect.isfunction(method):
        raise InvalidEndpoint(f"@endpoint decorates a method (def or async def), not {type(method).__name__}")
    if getattr(method, _MARK, True) == _CONCURRENT:
        raise InvalidEndpoint(f"{method.__qualname__} already has @concurrent_endpoint; remove @endpoint")
    setattr(method, _MARK, True)
    if urgent:
        setattr(method, _URGENT, True)
    if explicit_response_port:
        _mark_ported(method)
    return method


def _mark_ported(method: Callable[..., Any]) -> None:
    if len(inspect.signature(method).parameters) < 2:
        raise InvalidEndpoint(f"{method.__qualname__}(): expected a parameter for its response port, after self")
    setattr(method, _PORTED, True)


@overload
def concurrent_endpoint(method: F) -> F: ...


@overload
def concurrent_endpoint(method: None = None, *, explicit_response_port: bool = False) -> Callable[[F], F]: ...


def concurrent_endpoint(method: F | None = None, *, explicit_response_port: bool = False) -> F | Callable[[F], F]:
    """Mark an ``async def`` method as callable through a mesh, concurrently with the actor's other calls.

    Each call is an asyncio task of its own on the actor's event loop, and the actor takes its next message at once.
    The calls of one caller begin in the order in which they were sent, and end in any order. Their number is not
    limited.

    Args:
        explicit_response_port: As of `endpoint`. Its task may go on when the call is answered.

    Raises:
        InvalidEndpoint: The decorated object is not an ``async def`` function, or has ``@endpoint`` already.
    """
    if method is None:
        return functools.partial(concurrent_endpoint, explicit_response_port=explicit_response_port)
    if not inspect.iscoroutinefunction(method):
        kind = (
            "a def method, which would block the other calls" if inspect.isfunction(method) else type(method).__name__
        )
        raise InvalidEndpoint(f"@concurrent_endpoint decorates an async def method, not {kind}")
    if hasattr(method, _MARK):
        raise InvalidEndpoint(f"{method.__qualname__} already has @endpoint; use @concurrent_endpoint alone")
    setattr(method, _MARK, _CONCURRENT)
    if explicit_response_port:
        _mark_ported(method)
    return method


class EndpointSpec(msgspec.Struct, frozen=True):
    """One endpoint of an actor class."""

    name: str
    is_async: bool
    #: Runs beside the actor's other messages.
    is_concurrent: bool
    signature: inspect.Signature
    #: Is served before what waits.
    is_urgent: bool
    #: Answers by a port.
    is_ported: bool
    #: Every argument list fits (``*args, **kwargs``): nothing to check.
    takes_anything: bool
    #: No argument fits too.
    takes_nothing: bool

    def check(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Raise Python's own TypeError if the arguments do not fit."""
        if not (self.takes_anything or (self.takes_nothing and not args and not kwargs)):
            try:
                self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name}() {self._misfit(kwargs) or error}") from None

    def _misfit(self, kwargs: Mapping[str, object]) -> str:
        """Say which keyword is not known: of one that is misspelt, Python says that another is missing."""
        parameters = self.signature.parameters.values()
        if any(each.kind is each.VAR_KEYWORD for each in parameters):
            return ""
        known = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        wrong = next((name for name in kwargs if name not in known), None)
        if wrong is None:
            return ""
        import difflib  # start-up: for an error only

        near = difflib.get_close_matches(wrong, known, n=1)
        return f"got an unexpected keyword argument {wrong!r}" + (f": did you mean {near[0]!r}?" if near else "")

    def __str__(self) -> str:
        """Return name and signature as they are written: Python quotes annotations that are texts."""
        parameters = [each.replace(annotation=_written(each.annotation)) for each in self.signature.parameters.values()]
        returns = _written(self.signature.return_annotation)
        return f"{self.name}{self.signature.replace(parameters=parameters, return_annotation=returns)}"


class _Written(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _written(annotation: object) -> object:
    return _Written(annotation) if type(annotation) is str else annotation


def endpoints_of(cls: type) -> dict[str, EndpointSpec]:
    """Return the endpoints of a class by name, inherited ones included."""
    return _endpoints_of(cls)  # mypy holds a generic class for an argument that cannot be hashed


@functools.cache
def _endpoints_of(cls: type) -> dict[str, EndpointSpec]:
    specs = {}
    for name in dir(cls):
        method = inspect.getattr_static(cls, name, None)
        mark = getattr(method, _MARK, False)
        if not mark:
            continue
        function, is_ported = getattr(cls, name), getattr(method, _PORTED, False)
        signature = inspect.signature(function)
        signature = signature.replace(parameters=list(signature.parameters.values())[2 if is_ported else 1 :])
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        takes_anything = kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
        required = (parameter.default is parameter.empty for parameter in signature.parameters.values())
        takes_nothing = not any(
            needed and kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            for needed, kind in zip(required, kinds, strict=True)
        )
        is_async, is_urgent = inspect.iscoroutinefunction(function), getattr(method, _URGENT, False)
        specs[name] = EndpointSpec(
            name, is_async, mark == _CONCURRENT, signature, is_urgent, is_ported, takes_anything, takes_nothing
        )
    return specs


def forget_endpoints() -> None:
    """Keep no class in use: the process ends."""
    _endpoints_of.cache_clear()


def explain_missing(cls: type, name: str) -> Exception:
    """Return the error for ``mesh.name`` when ``name`` is not an endpoint of ``cls``."""
    if name in dir(cls) and not name.startswith("__"):
        if callable(getattr(cls, name, None)):
            return NotAnEndpointError(
                f"{cls.__name__}.{name} is a method, but not an endpoint: decorate it with @endpoint"
            )
        return NotAnEndpointError(
            f"{cls.__name__}.{name} is not an endpoint; an actor's data is read through an endpoint"
        )
    names = sorted(endpoints_of(cls))
    import difflib  # start-up: for a mistake only

    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names) or 'none'}"
    return AttributeError(f"{cls.__name__} has no endpoint {name!r}; {hint}", name=name)

"""A class of actors without its code: what another program needs to call its endpoints, and a class made of that.

Defaults and annotations are texts there. The code of the class, and the modules that it needs, stay on the ranks.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import cast

from meshrt.actor.actor import Actor
from meshrt.actor.endpoint import EndpointSpec, concurrent_endpoint, endpoint, endpoints_of
from meshrt.errors import RemoteException
from meshrt.wire.clients import Described, EndpointFacts, Parameter
from meshrt.wire.codec import describe

__all__ = ["class_of", "described", "name_taken", "shown"]

#: Characters of a value, and of the documentation of an endpoint, that are shown.
_SHOWN = 40
_DOC = 2000
_EMPTY = inspect.Parameter.empty


def shown(value: object) -> str:
    """Return a value as text: one of Python's own plain types as it is written, others by their class alone.

    It runs no user code.
    """
    plain = type(value) in (bool, int, float, str, bytes, type(None))
    text = repr(value) if plain else f"<{describe(value)}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def described(cls: type) -> Described:
    """Return what can be told of a class. It runs no user code."""
    endpoints = [_facts(cls, spec) for spec in endpoints_of(cls).values()]
    return Described(cls.__module__, cls.__qualname__, _doc(cls), endpoints)


def _facts(cls: type, spec: EndpointSpec) -> EndpointFacts:
    parameters = [
        Parameter(
            each.name,
            int(each.kind),
            None if each.default is _EMPTY else shown(each.default),
            _annotation(each.annotation),
        )
        for each in spec.signature.parameters.values()
    ]
    doc = _doc(inspect.getattr_static(cls, spec.name))
    returns = _annotation(spec.signature.return_annotation)
    return EndpointFacts(spec.name, spec.is_async, spec.is_concurrent, parameters, returns, doc)


def _doc(code: object) -> str:
    text = code.__dict__.get("__doc__") if isinstance(code, type) else getattr(code, "__doc__", None)
    return text[:_DOC] if type(text) is str else ""


def _annotation(annotation: object) -> str | None:
    if annotation is _EMPTY:
        return None
    if type(annotation) is str:
        return annotation
    if isinstance(annotation, type):
        return str(type.__dict__["__qualname__"].__get__(annotation))
    return inspect.formatannotation(annotation)


class _Text:
    """Stands for a default value or an annotation, which are on the ranks only."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def class_of(facts: Described) -> type[Actor]:
    """Return a class with the same endpoints, which do nothing here: a mesh of it checks arguments and calls."""
    body: dict[str, object] = {each.name: _stub(facts.name, each) for each in facts.endpoints}
    body.update(__module__=facts.module, __qualname__=facts.name, __doc__=facts.doc or None)
    return type(facts.name.rpartition(".")[2], (Actor,), body)


def _stub(owner: str, facts: EndpointFacts) -> object:
    async def awaited(*_args: object, **_kwargs: object) -> None:
        raise NotImplementedError(f"{owner}.{facts.name} runs in another program")

    def plain(*_args: object, **_kwargs: object) -> None:
        raise NotImplementedError(f"{owner}.{facts.name} runs in another program")

    stub = cast("types.FunctionType", awaited if facts.is_async else plain)
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    parameters += [
        inspect.Parameter(
            each.name,
            inspect._ParameterKind(each.kind),
            default=_EMPTY if each.default is None else _Text(each.default),
            annotation=_EMPTY if each.annotation is None else _Text(each.annotation),
        )
        for each in facts.parameters
    ]
    returns = inspect.Signature.empty if facts.returns is None else _Text(facts.returns)
    stub.__dict__["__signature__"] = inspect.Signature(parameters, return_annotation=returns)
    stub.__name__, stub.__qualname__, stub.__doc__ = facts.name, f"{owner}.{facts.name}", facts.doc or None
    return concurrent_endpoint(stub) if facts.is_concurrent else endpoint(stub)


def name_taken(name: str, built: Sequence[str], asked: Sequence[str]) -> RemoteException:
    """Return the error of one who wants an actor with the name of another one.

    Args:
        built, asked: Of singletons, a digest and a text of what they are built from; empty for other actors.
    """
    what, wanted = (built or ["", "an actor that spawn() has built"])[-1], asked[-1] if asked else ""
    if not asked:
        text = f"an actor named {name!r} already runs on this mesh; give the second actor another name"
    elif what == wanted:
        text = f"the singleton {name!r} already exists as {what}, with other arguments"
    else:
        text = f"the singleton {name!r} already exists as {what}, not {wanted}; use another name, or stop() that one"
    return RemoteException("meshrt.errors.UsageError", text, "")

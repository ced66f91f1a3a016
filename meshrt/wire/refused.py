"""The error of what cannot be pickled: it is also of the type of what ``__getstate__`` or ``__reduce__`` has raised."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from meshrt.errors import ActorError, ArgumentNotSerializable, MeshError
from meshrt.wire.codec import own_attribute

__all__ = ["argument_refused", "built_in", "of_type"]

E = TypeVar("E", bound=MeshError)


def argument_refused(text: str, cause: BaseException | None) -> ArgumentNotSerializable:
    """Return the error of an argument."""
    return of_type(ArgumentNotSerializable(text), cause)


def of_type(error: E, cause: BaseException | None) -> E:
    """Return the same error, of the type of ``cause`` as well. No code of that class runs; it may refuse."""
    kind = type(cause)
    # An error of a rank stands for the one that was raised there.
    while issubclass(kind, ActorError):
        kind = vars(kind).get("kind", type(None))
    if not issubclass(kind, Exception) or issubclass(type(error), kind) or issubclass(kind, MeshError):
        return error
    try:
        cls = _class_for(type(error), kind)  # type: ignore[arg-type]  # mypy: a class is not hashable
        made: E = built_in(cls).__new__(cls)
    except Exception:  # another memory layout, an error of its metaclass, subclasses not allowed ...
        return error
    made.args = error.args
    own_attribute(made, "__dict__").update(own_attribute(error, "__dict__"))
    return made


@functools.lru_cache(maxsize=256)
def _class_for(base: type[MeshError], kind: type[Exception]) -> type[MeshError]:
    names = ("__init__", "__new__", "__str__", "__repr__", "__getattribute__", "__setattr__", "__eq__", "__hash__")
    facts = {name: getattr(base, name) for name in names}
    facts |= {"__module__": base.__module__, "__doc__": base.__doc__, "kind": kind}
    facts["__reduce__"] = lambda error: (_plain, (base, error.args, dict(own_attribute(error, "__dict__"))))
    return type(base.__name__, (base, kind), facts)


def _plain(base: type[MeshError], args: tuple[object, ...], state: dict[str, object]) -> MeshError:
    """Return the error without the type: elsewhere the class may not be known."""
    error = Exception.__new__(base, *args)
    error.args = args
    own_attribute(error, "__dict__").update(state, **({"exception": None} if "exception" in state else {}))
    return error


def built_in(cls: type) -> Any:
    """Return the built-in class with the memory layout of ``cls``: its constructor runs no code of the user."""
    while cls.__module__ != "builtins":
        cls = cls.__base__ or object
    return cls

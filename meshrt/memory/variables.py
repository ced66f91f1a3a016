"""The variables of an actor that live between calls: those of its object, of its class, and of the class' module.

Whoever knows of others appends to ``hooks.variables``: the debugger does, for stack frames that stand in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from meshrt.hooks import ActorState, Variable
from meshrt.inspect.values import bases, class_name, module_name
from meshrt.inspect.variables import attributes
from meshrt.inspect.visibility import is_library_file

__all__ = ["facts_of", "namespaces", "of_actors", "type_name"]

_CLASS_NAME: Callable[[Any], str] = vars(type)["__name__"].__get__
#: The names of a module, even if its class is one of the user's.
_MODULE_NAMES: Callable[[Any], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
#: Of these the number of elements says more than nothing.
_LENGTHS: dict[int, Callable[[Any], int]] = {
    id(cls): vars(cls)["__len__"] for cls in (list, tuple, dict, set, frozenset, str, bytes, bytearray)
}


def of_actors(actors: Sequence[ActorState]) -> Iterator[Variable]:
    """Go through the variables of actors; a module that several actors share is of the first one."""
    told: set[int] = set()
    for actor in actors:
        if actor.instance is None:
            continue
        for name, value in [*attributes(actor.instance), *_slots(actor.instance)]:
            yield Variable(actor.name, "attribute", f"self.{name}", value)
        for cls in _own_classes(type(actor.instance)):
            if id(cls) not in told:
                told.add(id(cls))
                for name, value in _names(type.__dict__["__dict__"].__get__(cls)):
                    yield Variable(actor.name, "class", f"{_CLASS_NAME(cls)}.{name}", value)
            for names in _globals_of(cls):
                if id(names) not in told:
                    told.add(id(names))
                    module = str(names.get("__name__", "?"))
                    for name, value in _names(names):
                        yield Variable(actor.name, "global", f"{module}.{name}", value)


def namespaces(actors: Sequence[ActorState]) -> Iterator[Any]:
    """Go through what no variable is walked into: actors, and modules with what their names stand for."""
    for actor in actors:
        if actor.instance is not None:
            yield actor.instance
            for cls in _own_classes(type(actor.instance)):
                yield from _globals_of(cls)
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            yield _MODULE_NAMES(module)
    yield sys.modules


def type_name(value: Any) -> str:
    """Return the class of a value as a person knows it: ``list``, ``numpy.ndarray``, ``train.Batch``."""
    module, name = module_name(type(value)), class_name(value)
    return name if module == "builtins" else f"{module}.{name}"


def facts_of(value: Any) -> dict[str, int]:
    """Return the number of elements of a built-in container, or {}."""
    length = next((_LENGTHS[id(cls)] for cls in bases(type(value)) if id(cls) in _LENGTHS), None)
    return {"length": length(value)} if length is not None else {}


def _own_classes(cls: type) -> list[type]:
    """Return a class and its bases, as far as the user wrote them."""
    return [base for base in bases(cls) if any(True for _ in _globals_of(base))]


def _globals_of(cls: type) -> Iterator[dict[str, Any]]:
    """Go through the names of the modules in which the methods of a class of the user's were written.

    They know them even if the class came here as a pickle of all it is, and its module is not loaded.
    """
    seen: set[int] = set()
    for value in list(type.__dict__["__dict__"].__get__(cls).values()):
        if type(value) is FunctionType and id(value.__globals__) not in seen:
            seen.add(id(value.__globals__))
            file = value.__code__.co_filename
            if not is_library_file(file) and not str(value.__globals__.get("__name__", "")).startswith("meshrt."):
                yield value.__globals__


def _names(names: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in list(names.items()) if not str(name).startswith("__")]


def _slots(instance: Any) -> Iterator[tuple[str, Any]]:
    for cls in bases(type(instance)):
        for name, slot in list(type.__dict__["__dict__"].__get__(cls).items()):
            if type(slot) is MemberDescriptorType:
                try:
                    yield name, slot.__get__(instance)
                except AttributeError:
                    continue  # nothing was put into it

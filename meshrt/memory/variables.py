"""The variables of an actor that live between calls: those of its object, of its class, and of the class' module.

A plug-in that knows other variables appends to ``hooks.variables``: the debugger does, for stack frames that are
stopped in it.
"""

from __future__ import annotations
import __future__

import array
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import TypedDict

from meshrt.files import is_library_file
from meshrt.hooks.facts import ActorState, Variable
from meshrt.hooks.table import hooks
from meshrt.inspect.values import bases, class_name, module_name
from meshrt.inspect.variables import attributes

__all__ = ["Facts", "all_variables", "facts_of", "namespaces", "own_names", "slots", "type_name"]

_CLASS_NAME: Callable[[object], str] = vars(type)["__name__"].__get__
#: Returns the names of a module, even if its class is a user's subclass.
_MODULE_NAMES: Callable[[object], dict[str, object]] = vars(ModuleType)["__dict__"].__get__
#: Classes whose number of elements is worth showing.
_LENGTHS: dict[int, Callable[[object], int]] = {
    id(cls): vars(cls)["__len__"] for cls in (list, tuple, deque, dict, set, frozenset, str, bytes, bytearray)
}


def all_variables(actors: Sequence[ActorState], *, frames: bool) -> Iterator[Variable]:
    """Yield the variables of actors, and those of `hooks.variables`.

    Args:
        frames: Include the variables of stack frames.
    """
    yield from _of_actors(actors)
    for source in tuple(hooks.variables):
        found: list[Variable] = []
        hooks.run([lambda source=source, found=found: found.extend(source())])
        yield from (each for each in found if frames or each.kind != "local")


def _of_actors(actors: Sequence[ActorState]) -> Iterator[Variable]:
    """Yield the variables of actors; a module that several actors share belongs to the first one."""
    told: set[int] = set()
    for actor in actors:
        if actor.instance is None:
            continue
        for name, value in [*attributes(actor.instance), *slots(actor.instance)]:
            yield Variable(actor.name, "attribute", f"self.{name}", value)
        if actor.script is not None and id(actor.script) not in told:
            told.add(id(actor.script))
            for name, value in own_names(actor.script):
                yield Variable(actor.name, "global", name, value)
        for cls in _own_classes(type(actor.instance)):
            if id(cls) not in told:
                told.add(id(cls))
                for name, value in own_names(type.__dict__["__dict__"].__get__(cls)):
                    yield Variable(actor.name, "class", f"{_CLASS_NAME(cls)}.{name}", value)
            for names in _globals_of(cls):
                if id(names) not in told:
                    told.add(id(names))
                    module = str(names.get("__name__", "?"))
                    for name, value in own_names(names):
                        yield Variable(actor.name, "global", f"{module}.{name}", value)


def namespaces(actors: Sequence[ActorState]) -> Iterator[object]:
    """Yield the objects that no walk enters: actors, and modules with the values of their names."""
    for actor in actors:
        if actor.instance is not None:
            yield actor.instance
            for cls in _own_classes(type(actor.instance)):
                yield from _globals_of(cls)
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType):  # not what a module of C code only says that it is
            yield _MODULE_NAMES(module)
    yield sys.modules


def type_name(value: object) -> str:
    """Return the class of a value as a user knows it: ``list``, ``numpy.ndarray``, ``train.Batch``."""
    module, name = module_name(type(value)), class_name(value)
    return name if module == "builtins" else f"{module}.{name}"


class Facts(TypedDict, total=False):
    """What is known of an array, or of a container."""

    length: int
    shape: list[int]
    dtype: str
    device: str


def facts_of(value: object) -> Facts:
    """Return the length of a built-in container, and the type code of an array; {} for other values."""
    if type(value) is memoryview:
        return _of_view(value)
    for cls in bases(type(value)):
        if cls is array.array:
            members = vars(array.array)
            return {"length": members["__len__"](value), "dtype": members["typecode"].__get__(value)}
        if id(cls) in _LENGTHS:
            return {"length": _LENGTHS[id(cls)](value)}
    return {}


def _of_view(view: memoryview) -> Facts:
    try:
        shape: tuple[int, ...] = view.shape or ()
        dtype = view.format
        return {"length": shape[0], "dtype": dtype} if len(shape) == 1 else {"shape": list(shape), "dtype": dtype}
    except ValueError:
        return {}  # it was released


def _own_classes(cls: type) -> list[type]:
    """Return a class and its bases, of those that user code defines."""
    return [base for base in bases(cls) if any(True for _ in _globals_of(base))]


def _globals_of(cls: type) -> Iterator[dict[str, object]]:
    """Yield the names of the modules in which the methods of a user's class were written.

    Methods refer to these names even if the class came as a pickle by value, and its module is not loaded.
    """
    seen: set[int] = set()
    for value in list(type.__dict__["__dict__"].__get__(cls).values()):
        if type(value) is FunctionType and id(value.__globals__) not in seen:
            seen.add(id(value.__globals__))
            file = value.__code__.co_filename
            if not is_library_file(file) and not str(value.__globals__.get("__name__", "")).startswith("meshrt."):
                yield value.__globals__


def own_names(names: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return the names of a module or a class with their values, without those that Python sets."""
    return [
        (name, value)
        for name, value in list(names.items())
        if not str(name).startswith("__") and type(value) is not __future__._Feature
    ]


def slots(instance: object) -> Iterator[tuple[str, object]]:
    """Yield the instance variables of an object that are in slots."""
    for cls in bases(type(instance)):
        for name, slot in list(type.__dict__["__dict__"].__get__(cls).items()):
            if type(slot) is MemberDescriptorType:
                try:
                    yield name, slot.__get__(instance)
                except AttributeError:
                    continue  # the slot is empty

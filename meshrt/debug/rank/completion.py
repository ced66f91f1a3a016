"""Completions of the last word of a line, found without running user code.

An attribute is looked up where it is stored: in the instance, its slots and its classes. Values of a property or of
``__getattr__`` are not stored, so a chain through one has no completions.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import keyword
import re
from collections.abc import Mapping
from types import MemberDescriptorType, ModuleType

from meshrt.inspect.values import stored

__all__ = ["complete"]

_CHAIN = re.compile(r"(?:[^\W\d]\w*\s*\.\s*)*(?:[^\W\d]\w*)?$")
#: Most names in an answer.
_MOST = 500


def complete(text: str, *namespaces: Mapping[str, object]) -> list[str]:
    """Return the completions of the last word of ``text``, sorted: ``p len(self.mo`` -> ``["len(self.model", ...]``.

    Args:
        namespaces: Where names are looked up, the nearest first; built-in names come last.
    """
    match = _CHAIN.search(text)
    if match is None or text[: match.start()].rstrip().endswith("."):
        return []  # an attribute of a value that only running code would give
    chain = "".join(match[0].split())
    *path, last = chain.split(".")
    before = text[text.rfind(" ", 0, match.start()) + 1 : match.start()]
    if not path:
        names = {name for namespace in (*namespaces, vars(builtins)) for name in list(namespace)}
        names.update(keyword.kwlist)
        return _matching(names, last, before)
    try:
        value = next(space for space in (*namespaces, vars(builtins)) if path[0] in space)[path[0]]
        for name in path[1:]:
            value = _stored(value, name)
    except (StopIteration, AttributeError):
        return []
    return _matching(_names_of(value), last, f"{before}{'.'.join(path)}.")


def _matching(names: set[str], start: str, prefix: str) -> list[str]:
    hidden = not start.startswith("_")
    fitting = [name for name in names if name.startswith(start) and not (hidden and name.startswith("_"))]
    return [prefix + name for name in sorted(fitting)][:_MOST]


def _stored(value: object, name: str) -> object:
    found = inspect.getattr_static(value, name)
    kind = type(found)  # isinstance reads the value's `__class__`, which may run any code
    if kind is MemberDescriptorType:  # a slot: reading it runs no code of the user's
        return found.__get__(value)
    if issubclass(kind, staticmethod | classmethod) or stored(kind, "__set__") or stored(kind, "__delete__"):
        raise AttributeError(name)
    return found


def _names_of(value: object) -> set[str]:
    names: set[object] = set()
    for cls in type.__dict__["__mro__"].__get__(type(value)):
        names.update(type.__dict__["__dict__"].__get__(cls))
    if issubclass(type(value), type):
        for cls in type.__dict__["__mro__"].__get__(value):
            names.update(type.__dict__["__dict__"].__get__(cls))
    if type(value) is ModuleType:
        names.update(value.__dict__)
    else:
        with contextlib.suppress(AttributeError, TypeError):  # no dictionary, or none that is stored
            names.update(object.__getattribute__(value, "__dict__"))
    return {name for name in names if isinstance(name, str)}

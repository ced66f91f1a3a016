"""Classes of a script, which its ranks have by value: no module has their names.

cloudpickle sends those globals along that the functions of a class use. The class itself is seldom one of them, but who
debugs it types its name.
"""

from __future__ import annotations

import sys
import types

__all__ = ["named_by_value"]


def named_by_value(cls: type) -> dict[str, object]:
    """Make the classes that ``cls`` consists of known by their names in the globals of their functions. Any thread.

    Returns:
        These globals; none if ``cls`` was imported.
    """
    sent = [each for each in cls.__mro__ if not _is_imported(each)]
    functions = [
        value for each in sent for value in list(each.__dict__.values()) if isinstance(value, types.FunctionType)
    ]
    names: dict[str, object] = {}
    for namespace in {id(function.__globals__): function.__globals__ for function in functions}.values():
        for each in sent:
            if "." not in each.__qualname__:
                namespace.setdefault(each.__name__, each)
        names = {**namespace, **names}
    return names


def _is_imported(cls: type) -> bool:
    found: object = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is cls

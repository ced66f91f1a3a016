"""The code of a file as far as this process has it: from modules, and from classes that came by value."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from meshrt.hooks.facts import ActorState
from meshrt.program.places import names_file

__all__ = ["loaded_code"]


def loaded_code(file: str, actors: Sequence[ActorState]) -> list[tuple[str, list[CodeType]]]:
    """Return the code of each loaded file that ``file`` names, with its full name."""
    found: dict[str, list[CodeType]] = {}
    for module in list(sys.modules.values()):
        filename = getattr(module, "__dict__", {}).get("__file__")  # the module's own __getattr__ is user code
        if isinstance(filename, str) and names_file(file, filename):
            code = _compiled(filename)
            if code is not None:
                found[filename] = [code]
    for function in _shipped_functions(actors):
        filename = function.__code__.co_filename
        if not names_file(file, filename):
            continue
        if filename not in found:
            code = _compiled(filename)
            found[filename] = [] if code is None else [code]
        if not any(code.co_name == "<module>" for code in found[filename]):
            found[filename].append(function.__code__)
    return [(filename, roots) for filename, roots in found.items() if roots]


def _compiled(filename: str) -> CodeType | None:
    lines = linecache.getlines(filename)
    return _compile(filename, "".join(lines)) if lines else None


@lru_cache(maxsize=8)
def _compile(filename: str, text: str) -> CodeType | None:
    try:
        return compile(text, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None  # changed since it was loaded, or not Python: its functions are used one by one


def _shipped_functions(actors: Sequence[ActorState]) -> Iterable[FunctionType]:
    """Return the functions of actors' classes, and those that these can name: shipped code is in no module."""
    namespaces: dict[int, Mapping[str, Any]] = {}
    classes: dict[type, None] = {}
    for actor in actors:
        if actor.instance is not None:
            classes.update(dict.fromkeys(type(actor.instance).__mro__))
    functions: dict[FunctionType, None] = {}
    for cls in classes:
        _add_functions(cls.__dict__.values(), functions)
    for function in functions:
        namespaces[id(function.__globals__)] = function.__globals__
    for namespace in namespaces.values():
        values = list(namespace.values())
        _add_functions(values, functions)
        for value in values:
            if isinstance(value, type):
                _add_functions(value.__dict__.values(), functions)
    return functions


def _add_functions(values: Iterable[Any], functions: dict[FunctionType, None]) -> None:
    for value in list(values):
        kind = type(value)  # isinstance would call code of the value
        if kind in (staticmethod, classmethod):
            value = value.__func__
        elif kind is property:
            value = value.fget
        while type(value) is FunctionType and value not in functions:
            functions[value] = None
            value = value.__dict__.get("__wrapped__")

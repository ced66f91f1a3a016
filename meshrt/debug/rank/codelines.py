"""The code of a file, as far as this process has it: which lines have code, and which function a line belongs to.

A breakpoint is set on a line of text. What runs are code objects, and one line may belong to several: ``def`` runs in
the code around the function; a comprehension has (before 3.12) a code object of its own. A breakpoint applies to the
outermost function whose body has the line.

Code is in modules, and in classes that came by value, which are in none.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from meshrt.hooks.facts import ActorState
from meshrt.program.places import names_file

__all__ = ["NoCodeError", "Target", "body_of", "find", "is_module", "loaded_code", "nested"]


class Target(NamedTuple):
    """A line, in the code object that has this first line and this qualified name."""

    line: int
    first: int
    name: str

    def is_in(self, code: CodeType) -> bool:
        """Whether ``code``, of the right file, is the code object of this line."""
        return code.co_firstlineno == self.first and code.co_qualname == self.name


class NoCodeError(LookupError):
    """No code can be stopped at on the line; the text says why."""


def nested(code: CodeType) -> Iterator[CodeType]:
    """Return ``code`` and every code object in it, outer ones first."""
    yield code
    for constant in _constants(code):
        yield from nested(constant)


def _constants(code: CodeType) -> list[CodeType]:
    """Return the code objects in ``code``, but for the annotations, which are functions from 3.14 on."""
    found = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return [constant for constant in found if constant.co_name != "__annotate__"]


def is_module(code: CodeType) -> bool:
    """Whether ``code`` is that of a module or a class: it runs once."""
    return not code.co_flags & inspect.CO_OPTIMIZED


def body_of(code: CodeType) -> list[int]:
    """Return the lines of ``code``, ascending; of a function without the lines that only define it."""
    lines = {line for _, _, line in code.co_lines() if line}
    if not is_module(code) and len(lines) > 1:
        lines.discard(code.co_firstlineno)
    return sorted(lines)


def find(roots: Iterable[CodeType], line: int, *, ran: bool) -> Target:
    """Return where a breakpoint on ``line`` stops: there, or on the next line of the same function with code.

    It is never moved beyond the end of that function: the code after it runs at other times, or never again.

    Args:
        roots: The code of the module, or of all known functions of the file.
        ran: The module's own code has run already; only its functions will run again.
    Raises:
        NoCodeError: There is no code to stop at.
    """
    lines: dict[int, CodeType] = {}
    over: set[int] = set()
    headers: list[tuple[int, CodeType]] = []
    for root in roots:
        for code in nested(root):
            body = body_of(code)
            if is_module(code):
                headers += _headers(code)
            if ran and is_module(code):
                over.update(body)
                continue
            for number in body:
                lines.setdefault(number, code)
    header = [code for start, code in headers if start <= line < body_of(code)[0]]
    if not header and line not in lines:
        # A function without its module: its first lines have no code of it.
        header = [code for code in lines.values() if code.co_firstlineno <= line < body_of(code)[0]]
    if header:
        return Target(body_of(header[-1])[0], header[-1].co_firstlineno, header[-1].co_qualname)
    if line in lines:
        code = lines[line]
        return Target(line, code.co_firstlineno, code.co_qualname)
    if line in over:
        raise NoCodeError(f"line {line} is outside all functions and has already run")
    following = min((number for number in lines if number > line), default=0)
    if not following:
        last = max((*lines, *over), default=0)
        raise NoCodeError(f"there is no code at line {line} or after it; the last line with code is {last}")
    code = lines[following]
    before = max((number for number in lines if number < line), default=0)
    if is_module(code):
        same = (not before or is_module(lines[before])) and following not in {start for start, _ in headers}
    else:
        same = code.co_firstlineno <= line
    if not same:
        raise NoCodeError(_between(line, (before, lines.get(before)), (following, code)))
    return Target(following, code.co_firstlineno, code.co_qualname)


def _between(line: int, above: tuple[int, CodeType | None], below: tuple[int, CodeType]) -> str:
    """Say what a line without code is between: the nearest lines with code, and their functions."""
    last, before = above
    following, after = below
    ends = f"{before.co_qualname} ends at line {last}, " if before is not None and not is_module(before) else ""
    begins = "the next code is" if is_module(after) else f"{after.co_qualname} begins"
    start = following if is_module(after) else after.co_firstlineno
    return f"line {line} has no code and is in no function: {ends}{begins} at line {start}"


def _headers(module: CodeType) -> list[tuple[int, CodeType]]:
    """Return the functions that a module or a class defines, with the line where each definition starts."""
    functions = [code for code in _constants(module) if not is_module(code)]
    return [(code.co_firstlineno, code) for code in functions if body_of(code)[:1] > [code.co_firstlineno]]


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

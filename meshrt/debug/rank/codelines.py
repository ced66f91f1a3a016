"""Which lines have code, and which function a line belongs to.

A breakpoint is set on a line of text. What runs are code objects, and one line may belong to several: ``def`` runs in
the code around the function; a comprehension has (before 3.12) a code object of its own. A breakpoint applies to the
outermost function whose body has the line.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import NamedTuple

__all__ = ["NoCodeError", "Target", "body_of", "find", "is_module", "nested"]


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
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


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
        raise NoCodeError(f"line {line} is outside of every function, and has run already")
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
    begins = "code goes on" if is_module(after) else f"{after.co_qualname} begins"
    start = following if is_module(after) else after.co_firstlineno
    return f"line {line} has no code and is in no function: {ends}{begins} at line {start}"


def _headers(module: CodeType) -> list[tuple[int, CodeType]]:
    """Return the functions that a module or a class defines, with the line where each definition starts."""
    functions = [code for code in module.co_consts if isinstance(code, CodeType) and not is_module(code)]
    return [(code.co_firstlineno, code) for code in functions if body_of(code)[:1] > [code.co_firstlineno]]

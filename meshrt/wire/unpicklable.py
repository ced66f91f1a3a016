"""Which global of a script keeps it from being pickled: searched after pickling has failed.

Objects of ``__main__`` are sent by value, and with each function the globals that it uses. The error for a global that
cannot be pickled does not name the place where it is used.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator, Sequence

__all__ = ["hint"]


def hint(
    functions: Sequence[types.FunctionType], describe: Callable[[object], str], fails: Callable[[object], bool]
) -> str:
    """Return what to do about a global that cannot be pickled, or "" if there is none.

    Args:
        functions: Those that were being pickled by value, the latest last.
        describe: Names the type of a value.
        fails: Says whether a value cannot be pickled.
    """
    for function in reversed(functions):
        for name in dict.fromkeys(_globals_of(function.__code__)):
            value = function.__globals__.get(name)
            # A function or a class is not the cause: pickling got so far that it is one of `functions` itself.
            if not isinstance(value, types.FunctionType | types.ModuleType | type) and fails(value):
                return (
                    f"{function.__qualname__}() uses the global {name} ({describe(value)}), which would be sent too; "
                    "create it in __init__, or move it into a module, together with the code that uses it"
                )
    return ""


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Go through the names of globals that a function and those inside of it read."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)

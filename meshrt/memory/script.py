"""The script itself: its name, and its variables, which are the names of its main module. In the root."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from meshrt.hooks.facts import Answered, Variable
from meshrt.memory.opening import opened
from meshrt.memory.operations import FindHolders, Heap, Holders, MeasureVariables, Variables
from meshrt.memory.rows import holding, rows
from meshrt.memory.variables import own_names
from meshrt.wire.source import command_text

__all__ = ["SCRIPT_ADDRESS", "script_holding", "script_name", "script_sizes"]

#: In the place of an actor, and of mesh id and rank.
_SCRIPT = "script"
SCRIPT_ADDRESS = ("", -1)
#: Characters of a program text given on the command line.
_TEXT_MAX = 4000


def script_name() -> str:
    """Return a name that is the same in each run of the program; "": it is typed, or comes from a pipe.

    The path of its file, ``-m MODULE``, or ``-c TEXT``.
    """
    module = sys.modules.get("__main__")
    spec = getattr(module, "__spec__", None)
    if spec is not None:
        return f"-m {spec.name.removesuffix('.__main__')}"
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return os.path.realpath(file)
    text = command_text()
    return "" if text is None else f"-c {text}"[:_TEXT_MAX]


def script_sizes(asked: MeasureVariables) -> Answered[Variables, Heap]:
    """Measure the script's variables, as a rank does. Not on the loop."""
    measure = opened if asked.opened else rows
    same, _ = measure((), asked, more=_variables())
    return Answered(SCRIPT_ADDRESS[0], SCRIPT_ADDRESS[1:], same, {})


def script_holding(asked: FindHolders) -> Answered[Holders, None]:
    """Return which of these variables hold references, as a rank does. Not on the loop."""
    return Answered(SCRIPT_ADDRESS[0], SCRIPT_ADDRESS[1:], holding((), asked, more=_variables()), {})


def _variables() -> Iterator[Variable]:
    module = sys.modules.get("__main__")
    names: dict[str, Any] = vars(module) if module is not None else {}
    for name, value in own_names(names):
        if type(value) is not FunctionType or value.__globals__ is names:  # other functions are imported
            yield Variable(_SCRIPT, "global", f"__main__.{name}", value)

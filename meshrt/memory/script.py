"""The variables of the script itself: the names of its module. In the root; not on its loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from meshrt.hooks import Body, Group, Variable
from meshrt.memory.holding import holding
from meshrt.memory.opening import opened
from meshrt.memory.rows import rows
from meshrt.memory.variables import own_names

__all__ = ["SCRIPT_ADDRESS", "script_holding", "script_sizes"]

#: In the place of an actor, and of mesh id and rank.
_SCRIPT = "script"
SCRIPT_ADDRESS = ("", -1)


def script_sizes(body: Body) -> Group:
    """Measure them, as a rank does it: returns its answer to ``memory.variables``."""
    measure = opened if body.get("opened") else rows
    same = measure((), body, more=_variables())
    same.pop("counted")
    return Group(SCRIPT_ADDRESS[0], SCRIPT_ADDRESS[1:], "answered", same, {})


def script_holding(body: Body) -> Group:
    """Return which of them hold references: the answer to ``memory.holding``."""
    return Group(SCRIPT_ADDRESS[0], SCRIPT_ADDRESS[1:], "answered", holding((), body, more=_variables()), {})


def _variables() -> Iterator[Variable]:
    module = sys.modules.get("__main__")
    names: dict[str, Any] = vars(module) if module is not None else {}
    for name, value in own_names(names):
        if type(value) is not FunctionType or value.__globals__ is names:  # others it has only imported
            yield Variable(_SCRIPT, "global", f"__main__.{name}", value)

"""Inspection of a running program: where its ranks are, and which of them are blocked.

A plug-in: ranks load `meshrt.inspect.rank` at their first pulse; the root loads `meshrt.inspect.root` at the first
event. A tool asks ranks with ``services.gather(targets, STACKS, {"actor": "", "verbose": False}, seconds, report)``,
puts the groups of each report into `Stacks`, and shows `Stacks.to_wire` with `render_stacks`.

Modules are imported at their first use, because every rank has this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshrt.inspect.root import Activity, ActivityRow
    from meshrt.inspect.text import render_stacks
    from meshrt.inspect.tree import STACKS, Stacks, innermost

__all__ = ["STACKS", "Activity", "ActivityRow", "Stacks", "innermost", "render_stacks"]

_HOMES = {
    "STACKS": "tree",
    "Activity": "root",
    "ActivityRow": "root",
    "Stacks": "tree",
    "innermost": "tree",
    "render_stacks": "text",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'meshrt.inspect' has no attribute {name!r}")
    return getattr(importlib.import_module(f"meshrt.inspect.{_HOMES[name]}"), name)

"""Engines by name: ``proc_mesh(engine="ray")``. Loaded by name, too: an engine is above this floor."""

from __future__ import annotations

import importlib

from meshrt.errors import UsageError
from meshrt.mesh.engine import Engine

__all__ = ["engine_of"]

#: Module and class of each; made without arguments.
_ENGINES = {
    "local": ("meshrt.engine.local", "LocalEngine"),
    "ray": ("meshrt.engine.ray_engine", "RayEngine"),
}


def engine_of(engine: Engine | str) -> Engine:
    """Return an engine, which may be given by its name.

    Raises:
        UsageError: There is none of this name.
    """
    if not isinstance(engine, str):
        return engine
    if engine not in _ENGINES:
        names = ", ".join(map(repr, _ENGINES))
        raise UsageError(f"there is no engine {engine!r}: expected one of {names}, or an engine")
    module, name = _ENGINES[engine]
    made: Engine = getattr(importlib.import_module(module), name)()
    return made

"""What places the meshes of which the script does not say how. It is asked before anything else of meshrt is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshrt.mesh.engine import DefaultEngine

__all__ = ["default_engine", "use_engine"]

_default: DefaultEngine | None = None


def use_engine(engine: DefaultEngine | None) -> None:
    """Have meshes of this process be placed by ``engine``, unless the script names one; None: by the local engine."""
    global _default
    _default = engine


def default_engine() -> DefaultEngine | None:
    """Return what `use_engine` was given."""
    return _default

"""Modules that this machine does not have, and the root has among its libraries: said where an import fails."""

from __future__ import annotations

__all__ = ["note_absent", "why_absent"]

_places: dict[str, str] = {}


def note_absent(name: str, where: str) -> None:
    """Note that a module is not here. Any thread."""
    _places[name] = where


def why_absent(name: str | None) -> str:
    """Return where a module is that an import has not found; "": not at the root, either."""
    return _places.get(name or "", "")

"""Rows of an answer as lists: the names of their columns are sent once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["packed"]


def packed(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Return ``{"columns", "ranks"}``: rows as lists, with null for a value that is not known."""
    return {"columns": list(columns), "ranks": [[row.get(name) for name in columns] for row in rows]}

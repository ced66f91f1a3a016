"""Which rank holds how much memory, and in which variables."""

from __future__ import annotations

__all__: list[str] = []

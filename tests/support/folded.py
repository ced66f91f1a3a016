"""Reads what `meshrt.selection.fold_ranks` writes. Only tests do: data has ranks as numbers."""

from __future__ import annotations

__all__ = ["parse_folded"]


def parse_folded(text: str) -> tuple[int, ...]:
    """Return the ranks of a folded text, ascending; ValueError for other text."""
    ranks: list[int] = []
    for part in text.split(",") if text else ():
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        ranks += range(int(first), int(last or first) + 1, int(step or 1))
    return tuple(sorted(ranks))

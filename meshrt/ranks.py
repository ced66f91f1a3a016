"""Numbers of ranks in few characters: ``0-7,9-15``, ``1-31:2``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["fold_ranks"]

_STRIDED = 4  # from so many ranks on, first-last:step is shorter than the list


def fold_ranks(ranks: Iterable[int]) -> str:
    """Return ``ranks`` (any order, each >= 0) as text: runs as ``0-7``, even spacing as ``1-31:2``, "" for none."""
    ordered = sorted(set(ranks))
    if ordered and ordered[0] < 0:
        raise ValueError(f"ranks are not negative, got {ordered[0]}")
    parts = []
    start = 0
    while start < len(ordered):
        end = _end_of_run(ordered, start)
        first, last = ordered[start], ordered[end - 1]
        if end - start == 1:
            parts.append(str(first))
        else:
            step = ordered[start + 1] - first
            parts.append(f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}")
        start = end
    return ",".join(parts)


def _end_of_run(ordered: Sequence[int], start: int) -> int:
    """Return the end of the evenly spaced run from ``start`` that is worth one part."""
    if ordered[-1] - ordered[start] == len(ordered) - 1 - start:  # all that are left, without a gap
        return len(ordered)
    end = start + 1
    step = ordered[end] - ordered[start]
    while end < len(ordered) and ordered[end] - ordered[end - 1] == step:
        end += 1
    return end if step == 1 or end - start >= _STRIDED else start + 1

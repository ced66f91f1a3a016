"""The arithmetic of strided blocks: row-major strides, and how to get from a value back to its position.

A sum ``offset + sum(coordinate[k] * strides[k])`` can be decoded by division, largest stride first, when each stride is
larger than all smaller ones can reach together. All that slicing, splitting and renaming make of a dense block is of
that kind. Sizes (3, 3) with strides (2, 3) are not, although their nine sums differ.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import SupportsIndex

__all__ = ["Plan", "decoding_plan", "integer", "natural", "row_major_strides"]

# (stride, size, weight of one step in row-major order), largest stride first
Plan = tuple[tuple[int, int, int], ...]


def natural(name: str, value: SupportsIndex) -> int:
    """Return ``value`` as an int that is not negative; ``name`` says in errors what it is."""
    number = integer(name, value)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number


def integer(name: str, value: SupportsIndex) -> int:
    """Return ``value`` as an int; a float or a string is a TypeError that says what ``name`` had to be."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None


def row_major_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense block: 1 for the last dimension, then the product of all sizes behind."""
    return tuple(itertools.accumulate(reversed(sizes[1:]), operator.mul, initial=1))[::-1] if sizes else ()


def decoding_plan(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Plan | None:
    """Return how to decode a value by division, or None where strides interleave and only a table can."""
    if 0 in sizes:
        return ((1, 0, 1),)  # no coordinate is below 0: every value is absent
    weights = row_major_strides(sizes)
    steps = sorted(step for step in zip(strides, sizes, weights, strict=True) if step[1] > 1)
    merged: list[tuple[int, int, int]] = []
    reach = 0
    for stride, size, weight in steps:
        if stride <= reach:
            return None
        reach += stride * (size - 1)
        if merged and stride == merged[-1][0] * merged[-1][1] and weight == merged[-1][2] * merged[-1][1]:
            low = merged.pop()
            merged.append((low[0], low[1] * size, low[2]))
        else:
            merged.append((stride, size, weight))
    return tuple(reversed(merged))

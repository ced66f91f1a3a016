"""Terminal side: one line about the numbers or arrays of many ranks; outliers are named. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from meshrt.inspect.capping import without_addresses
from meshrt.inspect.facts import ArrayFacts, DictFacts, Facts, NumberFacts
from meshrt.selection import fold_ranks, group_by_value

__all__ = ["array_difference", "dict_difference", "number_in", "outliers", "summary", "summed_arrays"]

#: A rank is an outlier if its distance to the median is more than this many times the median distance.
_FAR = 5.0
#: The median distance that is assumed at least, as a part of the median: small differences are normal.
_LEAST = 0.01
#: Up to so many different numbers need no summary.
_FEW = 8
#: Outliers that are named one by one, at most.
_MOST_NAMED = 8


def number_in(text: str, facts: Facts | None) -> float | None:
    """Return the value of an answer that is a number, from its facts or else from its text; None: not a number."""
    if facts is not None:
        return facts.value if isinstance(facts, NumberFacts) else None
    try:
        return float(text) if len(text) <= 40 and not text.startswith(("*", "_")) and "_" not in text else None
    except ValueError:
        return None


def outliers(values: Mapping[int, float]) -> list[int]:
    """Return the ranks whose value is NaN, infinite or far from the median; none if no value is finite.

    Args:
        values: Value by rank.
    Returns:
        Ranks, ascending.
    """
    finite = {rank: value for rank, value in values.items() if math.isfinite(value)}
    odd = [rank for rank in values if rank not in finite]
    if len(odd) == len(values):
        return []  # no value is finite: none differs from the others
    if len(finite) >= 3:
        middle = statistics.median(finite.values())
        spread = statistics.median(abs(value - middle) for value in finite.values())
        spread = max(spread, _LEAST * abs(middle))
        odd += [rank for rank, value in finite.items() if abs(value - middle) > _FAR * spread]
    return sorted(odd)


def summary(answers: Sequence[tuple[int, str, Facts | None]]) -> str:
    """Return one line about (rank, text, facts) of several ranks, or "" where it would add nothing.

    Numbers: min, median and max with the ranks that have them, and the outliers. Arrays: whether shapes or types
    differ, and which ranks have NaN.
    """
    numbers = {rank: number for rank, text, facts in answers if (number := number_in(text, facts)) is not None}
    if len(numbers) == len(answers):
        distinct = len(set(numbers.values()))
        return _of_numbers(numbers) if distinct > _FEW or (distinct > 2 and outliers(numbers)) else ""
    arrays = {rank: facts for rank, _, facts in answers if isinstance(facts, ArrayFacts)}
    return _of_arrays(arrays) if len(arrays) > 1 and len(arrays) == len(answers) else ""


def summed_arrays(answers: Sequence[tuple[int, str, Facts | None]]) -> list[tuple[Sequence[int], str]]:
    """Return one line about the arrays of each shape, type and device, with their ranks; [] unless all are arrays.

    Of the ranks of a line: the least and the largest element, the least and the largest mean, each with the ranks that
    have it, and ranks whose mean is an outlier.
    """
    arrays = {rank: facts for rank, _, facts in answers if isinstance(facts, ArrayFacts)}
    if len(arrays) < len(answers):
        return []
    groups = group_by_value((rank, f"{facts.type} {' '.join(_kind(facts).values())}") for rank, facts in arrays.items())
    return [(ranks, _of_alike({rank: arrays[rank] for rank in ranks}, kind)) for ranks, kind in groups]


def _of_alike(arrays: Mapping[int, ArrayFacts], kind: str) -> str:
    parts = [kind.removesuffix(" cpu")]
    for name, choose in (("min", min), ("max", max)):
        values = {rank: value for rank, facts in arrays.items() if (value := _numbers(facts)[name]) is not None}
        if values:
            found = choose(values.values())
            parts.append(f"{name} {found:.6g} {_with(values, found)}")
    means = {rank: facts.mean for rank, facts in arrays.items() if facts.mean is not None}
    if means:
        low, high = min(means.values()), max(means.values())
        parts.append(f"mean {low:.6g} {_with(means, low)} to {high:.6g} {_with(means, high)}")
    if odd := outliers(means):
        parts.append(f"outliers of the mean {_named(means, odd)}")
    if with_nan := [rank for rank, facts in arrays.items() if facts.nan]:
        parts.append(f"NaN on [{fold_ranks(with_nan)}]")
    return ", ".join(parts)


def array_difference(facts: Facts | None, other: Facts | None) -> str:
    """Return what differs between two arrays, by their facts; "" if one of them is not an array."""
    if not isinstance(facts, ArrayFacts) or not isinstance(other, ArrayFacts):
        return ""
    kinds = zip(_kind(facts).items(), _kind(other).values(), strict=True)
    parts = [f"{name} {before} -> {value}" for (name, value), before in kinds if value != before]
    numbers = zip(_numbers(facts).items(), _numbers(other).values(), strict=True)
    for (name, number), earlier in numbers:
        if number is not None and earlier is not None and number != earlier:
            parts.append(f"{name} {number - earlier:+.6g}")
    return ", ".join(parts)


def _kind(facts: ArrayFacts) -> dict[str, str]:
    return {"shape": "x".join(map(str, facts.shape)) or "()", "dtype": facts.dtype, "device": facts.device}


def _numbers(facts: ArrayFacts) -> dict[str, float | None]:
    return {"min": facts.min, "max": facts.max, "mean": facts.mean, "nan": facts.nan, "masked": facts.masked}


def dict_difference(facts: Facts | None, other: Facts | None) -> list[str] | None:
    """Return the items that differ between two dicts, by their facts.

    Addresses of objects are ignored.

    Returns:
        One line for each item; None if one of them is not a dict, or if keys differ in addresses alone.
    """
    if not isinstance(facts, DictFacts) or not isinstance(other, DictFacts):
        return None
    items, before = (
        {without_addresses(key): without_addresses(text) for key, text in each.items.items()} for each in (facts, other)
    )
    if len(items) < len(facts.items) or len(before) < len(other.items):
        return None
    lines = [f"{key}: {text}  (missing)" for key, text in items.items() if key not in before]
    lines += [f"{key}: {items[key]}  ({text})" for key, text in before.items() if items.get(key, text) != text]
    lines += [f"{key}: missing  ({text})" for key, text in before.items() if key not in items]
    return [" ".join(line.split()) if "\n" in line else line for line in lines]  # values of arrays have several lines


def _of_numbers(values: Mapping[int, float]) -> str:
    finite = {rank: value for rank, value in values.items() if math.isfinite(value)}
    parts = []
    if finite:
        low, high = min(finite.values()), max(finite.values())
        middle = statistics.median(finite.values())
        parts.append(f"min {low:.6g} {_with(finite, low)}, median {middle:.6g}, max {high:.6g} {_with(finite, high)}")
    odd = outliers(values)
    if odd:
        parts.append(f"outliers: {_named(values, odd)}")
    return "; ".join(parts)


def _named(values: Mapping[int, float], ranks: Sequence[int]) -> str:
    named = [f"[{rank}] {values[rank]:.6g}" for rank in ranks[:_MOST_NAMED]]
    return ", ".join(named) + (f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else "")


def _with(values: Mapping[int, float], wanted: float) -> str:
    return f"[{fold_ranks(rank for rank, value in values.items() if value == wanted)}]"


def _of_arrays(arrays: Mapping[int, ArrayFacts]) -> str:
    parts = []
    for name in ("shape", "dtype", "device"):
        values = ((rank, getattr(facts, name)) for rank, facts in arrays.items())
        groups = group_by_value((rank, str(list(value) if name == "shape" else value)) for rank, value in values)
        if len(groups) > 1:
            parts.append(f"{name} differs: " + ", ".join(f"[{fold_ranks(ranks)}] {value}" for ranks, value in groups))
    with_nan = [rank for rank, facts in arrays.items() if facts.nan]
    if with_nan:
        parts.append(f"NaN on [{fold_ranks(with_nan)}]")
    return "; ".join(parts)

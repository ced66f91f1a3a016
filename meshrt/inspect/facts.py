"""Facts about a value beside its text: what can be compared between ranks (docs/json.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshrt.hooks.operations import Data

__all__ = ["ArrayFacts", "DictFacts", "Facts", "NumberFacts", "within"]


class NumberFacts(Data, frozen=True, tag_field="kind", tag="number"):
    """A number."""

    value: float


class ArrayFacts(Data, frozen=True, omit_defaults=True, tag_field="kind", tag="array"):
    """An array.

    Attributes:
        min, max, mean: Without NaN; None: there are none.
        nan: How many elements are NaN.
        masked: How many elements are masked; None: it is not a masked array.
    """

    type: str
    shape: Sequence[int]
    dtype: str
    device: str
    min: float | None
    max: float | None
    mean: float | None
    nan: int
    masked: int | None = None


class DictFacts(Data, frozen=True, tag_field="kind", tag="dict"):
    """A small dict; ``items``: in full or, of a long one, its beginning, its length and a checksum."""

    items: Mapping[str, str]


Facts = NumberFacts | ArrayFacts | DictFacts


def within(facts: Facts | None, limit: int) -> Facts | None:
    """Return ``facts``, or None if their items have more than ``limit`` characters."""
    items = facts.items if isinstance(facts, DictFacts) else {}
    return None if sum(len(key) + len(text) for key, text in items.items()) > limit else facts

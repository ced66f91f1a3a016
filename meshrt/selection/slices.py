"""``Slice``: a strided block of integers, and the inverse of each of its maps.

A slice holds ``offset + sum(coordinate[k] * strides[k])`` for all coordinates below ``sizes``, in row-major order (the
last dimension runs fastest). A slice is valid if its values are distinct and not negative. Nearly all are decoded by
division (see ``strides.py``); the few whose strides interleave are decoded by a table.

Source: the behaviour of ndslice in Monarch; unlike there, strides need not be multiples of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import SupportsIndex, final, overload

from meshrt.selection.strides import Plan, decoding_plan, integer, natural, row_major_strides

__all__ = ["Slice"]

_TABLE_LIMIT = 1 << 16  # values of a slice that only a table can decode


@final
class Slice:
    """An immutable strided block of integers, in row-major order.

    Args:
        offset: The first value, >= 0.
        sizes: Number of coordinates of each dimension, each >= 0.
        strides: What one step in each dimension adds to the value, each >= 0; as many as sizes.
    Raises:
        TypeError: A number is not an integer.
        ValueError: A number is negative, the lengths differ, or a value would occur twice.
    """

    __slots__ = ("_length", "_offset", "_plan", "_sizes", "_strides", "_table")

    _offset: int
    _sizes: tuple[int, ...]
    _strides: tuple[int, ...]
    _length: int
    _plan: Plan | None
    _table: dict[int, int] | None

    def __init__(
        self, *, offset: SupportsIndex, sizes: Iterable[SupportsIndex], strides: Iterable[SupportsIndex]
    ) -> None:
        self._offset = natural("offset", offset)
        self._sizes = tuple(natural("a size", size) for size in sizes)
        self._strides = tuple(natural("a stride", stride) for stride in strides)
        if len(self._sizes) != len(self._strides):
            raise ValueError(f"expected one stride for each size: sizes {self._sizes}, strides {self._strides}")
        self._length = math.prod(self._sizes)
        self._plan = decoding_plan(self._sizes, self._strides)
        self._table = None
        if self._plan is None:
            self._table = self._make_table()

    @classmethod
    def _make(cls, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Slice:
        """Make a slice that is known to be legal: no checks, and the decoding plan comes with its first use."""
        made = cls.__new__(cls)
        made._offset = offset
        made._sizes = sizes
        made._strides = strides
        made._length = math.prod(sizes)
        made._plan = None
        made._table = None
        return made

    @classmethod
    def new_row_major(cls, sizes: Iterable[SupportsIndex]) -> Slice:
        """Return the dense slice of ``sizes`` at offset 0: the last dimension has stride 1."""
        checked = tuple(natural("a size", size) for size in sizes)
        return cls._make(0, checked, row_major_strides(checked))

    @classmethod
    def from_list(cls, values: Iterable[SupportsIndex]) -> list[Slice]:
        """Cut ``values`` into one-dimensional slices, greedily from the lowest; a value given twice comes twice."""
        rest = sorted(natural("a value", value) for value in values)
        slices: list[Slice] = []
        start = 0
        while start < len(rest):
            end = start + 1
            step = rest[end] - rest[start] if end < len(rest) else 0
            while step > 0 and end < len(rest) and rest[end] - rest[end - 1] == step:
                end += 1
            slices.append(cls._make(rest[start], (end - start,), (step or 1,)))
            start = end
        return slices

    @property
    def offset(self) -> int:
        """The first value."""
        return self._offset

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of coordinates of each dimension."""
        return self._sizes

    @property
    def strides(self) -> tuple[int, ...]:
        """What one step in each dimension adds to the value."""
        return self._strides

    @property
    def ndim(self) -> int:
        """Number of dimensions; a slice without any holds one value, its offset."""
        return len(self._sizes)

    def index(self, value: SupportsIndex) -> int:
        """Return the row-major position of ``value``; ValueError when the slice does not hold it."""
        wanted = value if type(value) is int else integer("a value", value)
        plan = self._plan
        if plan is None:
            return self._index_without_plan(wanted)
        rest = wanted - self._offset
        position = 0
        for stride, size, weight in plan:
            coordinate, rest = divmod(rest, stride)
            if not 0 <= coordinate < size:
                raise ValueError(f"value {wanted} is not in {self!r}")
            position += coordinate * weight
        if rest:
            raise ValueError(f"value {wanted} is not in {self!r}")
        return position

    def coordinates(self, value: SupportsIndex) -> list[int]:
        """Return the coordinates of ``value``, one per dimension; ValueError when the slice does not hold it."""
        position = self.index(value)
        found = [0] * len(self._sizes)
        for dim in reversed(range(len(found))):
            position, found[dim] = divmod(position, self._sizes[dim])
        return found

    def nditem(self, coordinates: Sequence[SupportsIndex]) -> int:
        """Return the value at ``coordinates``.

        Raises:
            IndexError: Too few or too many coordinates, or one is outside ``0 <= coordinate < size``.
        """
        if len(coordinates) != len(self._sizes):
            raise IndexError(f"{len(self._sizes)} coordinates are needed for sizes {self._sizes}, got {coordinates!r}")
        value = self._offset
        for given, size, stride in zip(coordinates, self._sizes, self._strides, strict=True):
            coordinate = integer("a coordinate", given)
            if not 0 <= coordinate < size:
                raise IndexError(f"coordinates {coordinates!r} are outside sizes {self._sizes}")
            value += coordinate * stride
        return value

    def get(self, position: SupportsIndex) -> int:
        """Return the value at row-major ``position``; ValueError unless ``0 <= position < len(self)``."""
        rest = integer("a position", position)
        if not 0 <= rest < self._length:
            raise ValueError(f"position {rest} is outside a slice of {self._length} values")
        value = self._offset
        for size, stride in zip(reversed(self._sizes), reversed(self._strides), strict=True):
            rest, coordinate = divmod(rest, size)
            value += coordinate * stride
        return value

    def as_range(self) -> range | None:
        """Return the values as a range where they are one in row-major order, else None."""
        if self._length < 2:
            return range(self._offset, self._offset + self._length)
        plan = self._plan = self._plan or decoding_plan(self._sizes, self._strides)
        if plan is None or len(plan) > 1:
            return None
        stride, size, _ = plan[0]
        return range(self._offset, self._offset + stride * size, stride)

    @overload
    def __getitem__(self, position: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[int, ...]: ...
    def __getitem__(self, position: SupportsIndex | slice) -> int | tuple[int, ...]:
        if isinstance(position, slice):
            return tuple(self._values()[position])
        number = integer("a position", position)
        if number < 0:
            raise TypeError(f"positions in a Slice count from 0, got {number}")
        if number >= self._length:
            raise IndexError(f"position {number} is outside a slice of {self._length} values")
        return self.get(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._values())

    def __len__(self) -> int:
        return self._length

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int):
            return False
        try:
            return self.index(value) >= 0
        except ValueError:
            return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slice):
            return NotImplemented
        return (self._offset, self._sizes, self._strides) == (other._offset, other._sizes, other._strides)

    def __hash__(self) -> int:
        return hash((self._offset, self._sizes, self._strides))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self._offset, self._sizes, self._strides)

    def __repr__(self) -> str:
        return f"Slice(offset={self._offset}, sizes={self._sizes}, strides={self._strides})"

    def _values(self) -> Sequence[int]:
        simple = self.as_range()
        if simple is not None:
            return simple
        values = [self._offset]
        for size, stride in zip(self._sizes, self._strides, strict=True):
            steps = range(0, size * stride, stride) if stride else [0] * size
            values = [value + step for value in values for step in steps]
        return values

    def _index_without_plan(self, value: int) -> int:
        if self._table is None:
            self._plan = decoding_plan(self._sizes, self._strides)
            if self._plan is not None:
                return self.index(value)
            self._table = self._make_table()
        position = self._table.get(value)
        if position is None:
            raise ValueError(f"value {value} is not in {self!r}")
        return position

    def _make_table(self) -> dict[int, int]:
        if self._length > _TABLE_LIMIT:
            raise ValueError(
                f"sizes {self._sizes} with strides {self._strides} interleave, "
                f"and {self._length} values are too many to check that none occurs twice"
            )
        table = {value: position for position, value in enumerate(self._values())}
        if len(table) != self._length:
            raise ValueError(f"sizes {self._sizes} with strides {self._strides} name the same value twice")
        return table


def _rebuild(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Slice:
    return Slice._make(offset, sizes, strides)

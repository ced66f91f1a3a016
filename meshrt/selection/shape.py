"""``Shape``: named dimensions over a strided slice of base ranks. Slicing a mesh is taking a smaller shape of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import SupportsIndex, final

from meshrt.selection.extent import Extent, Point, checked_labels
from meshrt.selection.slices import Slice
from meshrt.selection.strides import integer

__all__ = ["Shape"]

_WIRE_RANKS = 1 << 24  # no mesh is as large; a foreign shape that claims to be is refused
_WIRE_NUMBER = 1 << 62


@final
class Shape:
    """Labels and the slice of base ranks they name. Immutable, hashable, picklable.

    ``at``, ``select`` and ``index`` return smaller shapes; their indices are relative to this shape.

    Args:
        labels: Distinct identifiers, one per dimension of ``slice``.
        slice: The base ranks.
    Raises:
        TypeError, ValueError: The labels are not such, or there are more or fewer of them than dimensions.
    """

    __slots__ = ("_extent", "_labels", "_ndslice")

    _labels: tuple[str, ...]
    _ndslice: Slice
    _extent: Extent | None

    def __init__(self, labels: Iterable[str], slice: Slice) -> None:
        if not isinstance(slice, Slice):
            raise TypeError(f"a Shape needs a Slice of ranks, got {slice!r}")
        self._labels = checked_labels(labels)
        if len(self._labels) != slice.ndim:
            raise ValueError(f"expected one label for each dimension: labels {self._labels}, sizes {slice.sizes}")
        self._ndslice = slice
        self._extent = None

    @classmethod
    def _make(cls, labels: tuple[str, ...], ndslice: Slice) -> Shape:
        """Make a shape from parts that are known to fit."""
        made = cls.__new__(cls)
        made._labels = labels
        made._ndslice = ndslice
        made._extent = None
        return made

    @classmethod
    def unity(cls) -> Shape:
        """Return the shape without dimensions, which holds rank 0."""
        return cls._make((), Slice._make(0, (), ()))

    @classmethod
    def from_extent(cls, extent: Mapping[str, SupportsIndex]) -> Shape:
        """Return the dense row-major shape of ``extent`` (label to size, in order), from base rank 0."""
        return cls(tuple(extent), Slice.new_row_major(extent.values()))

    @classmethod
    def from_wire(cls, wire: object) -> Shape:
        """Return the shape that ``to_wire`` wrote; ValueError for anything else. Safe for foreign input."""
        if not isinstance(wire, list | tuple) or len(wire) != 4:
            raise ValueError("a shape must be a list of labels, offset, sizes and strides")
        labels, offset, sizes, strides = wire
        if not isinstance(labels, list | tuple) or not all(isinstance(label, str) for label in labels):
            raise ValueError("the labels of a shape must be a list of strings")
        for name, numbers in (("offset", [offset]), ("sizes", sizes), ("strides", strides)):
            if not isinstance(numbers, list | tuple) or not all(map(_is_wire_number, numbers)):
                raise ValueError(f"the {name} of a shape must be whole numbers from 0 to {_WIRE_NUMBER}")
        ranks = 1
        for size in sizes:
            ranks *= size
            if ranks > _WIRE_RANKS:
                raise ValueError(f"a shape of more than {_WIRE_RANKS} ranks")
        return cls(labels, Slice(offset=offset, sizes=sizes, strides=strides))

    def to_wire(self) -> list[object]:
        """Return ``[labels, offset, sizes, strides]``, plain lists and ints."""
        ndslice = self._ndslice
        return [list(self._labels), ndslice.offset, list(ndslice.sizes), list(ndslice.strides)]

    @property
    def labels(self) -> tuple[str, ...]:
        """The dimensions, slowest first."""
        return self._labels

    @property
    def ndslice(self) -> Slice:
        """The base ranks."""
        return self._ndslice

    @property
    def extent(self) -> Extent:
        """The dimensions and their sizes."""
        if self._extent is None:
            self._extent = Extent._make(self._labels, self._ndslice.sizes)
        return self._extent

    def ranks(self) -> list[int]:
        """Return the base ranks in row-major order."""
        return list(self._ndslice)

    def point(self, rank: SupportsIndex) -> Point:
        """Return the position of base rank ``rank`` in this shape; ValueError when it is not in it."""
        return Point(self._ndslice.index(rank), self.extent)

    def coordinates(self, rank: SupportsIndex) -> dict[str, int]:
        """Return the coordinates of base rank ``rank``; ValueError when it is not in this shape."""
        return dict(zip(self._labels, self._ndslice.coordinates(rank), strict=True))

    def at(self, label: str, index: SupportsIndex) -> Shape:
        """Return the shape at ``index`` of one dimension, without that dimension.

        Raises:
            TypeError: The index is not an integer.
            ValueError: No such dimension, or the index is outside it.
        """
        return self.index(**{label: index})

    def index(self, /, **coordinates: SupportsIndex) -> Shape:
        """Return the shape at the given index of each given dimension, without those; errors as in ``at``."""
        ndslice = self._ndslice
        offset = ndslice.offset
        fixed = set()
        for label, given in coordinates.items():
            dim = self._dim(label)
            index = given if type(given) is int else integer(f"the index of dimension {label!r}", given)
            size = ndslice.sizes[dim]
            if not 0 <= index < size:
                raise ValueError(f"{label}={index} is out of range: {label} has size {size} in {self}")
            offset += index * ndslice.strides[dim]
            fixed.add(dim)
        kept = [dim for dim in range(ndslice.ndim) if dim not in fixed]
        sizes = tuple([ndslice.sizes[dim] for dim in kept])
        strides = tuple([ndslice.strides[dim] for dim in kept])
        return Shape._make(tuple([self._labels[dim] for dim in kept]), Slice._make(offset, sizes, strides))

    def select(self, label: str, slice: slice) -> Shape:
        """Return the shape with one dimension restricted to a Python slice of it; the dimension stays.

        Bounds clamp and count from the end as Python's do; the step must be positive.

        Raises:
            TypeError: Not a slice, or a bound that is not an integer.
            ValueError: No such dimension, nothing is left, or the step is zero or negative.
        """
        dim = self._dim(label)
        size = self._ndslice.sizes[dim]
        selected = _checked_range(label, size, slice)
        sizes, strides = list(self._ndslice.sizes), list(self._ndslice.strides)
        offset = self._ndslice.offset + selected.start * strides[dim]
        sizes[dim] = len(selected)
        strides[dim] *= selected.step
        return Shape._make(self._labels, Slice._make(offset, tuple(sizes), tuple(strides)))

    def __len__(self) -> int:
        return len(self._ndslice)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shape):
            return NotImplemented
        return self._labels == other._labels and self._ndslice == other._ndslice

    def __hash__(self) -> int:
        return hash((self._labels, self._ndslice))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self._labels, self._ndslice)

    def __str__(self) -> str:
        dims = zip(self._labels, self._ndslice.sizes, strict=True)
        return "{" + ",".join(f"{label}={size}" for label, size in dims) + "}"

    def __repr__(self) -> str:
        return f"Shape({self._labels}, {self._ndslice!r})"

    def _dim(self, label: str) -> int:
        try:
            return self._labels.index(label)
        except ValueError:
            raise ValueError(f"no dimension {label!r} in {self}") from None


def _checked_range(label: str, size: int, selector: slice) -> range:
    if not isinstance(selector, slice):
        raise TypeError(f"dimension {label!r} needs a slice such as slice(0, 4), got {selector!r}")
    try:
        selected = range(size)[selector]
    except TypeError:
        raise TypeError(f"the bounds of {selector!r} for dimension {label!r} must be integers") from None
    if selected.step < 0:
        raise ValueError(f"the step of {selector!r} for dimension {label!r} must be positive")
    if not selected:
        raise ValueError(f"empty range: {selector!r} selects nothing of dimension {label!r} of size {size}")
    return selected


def _is_wire_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _WIRE_NUMBER


def _rebuild(labels: tuple[str, ...], ndslice: Slice) -> Shape:
    return Shape._make(labels, ndslice)

"""``Extent``, the named sizes of a mesh, and ``Point``, one coordinate in it. Both are real mappings and immutable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import SupportsIndex, final

from meshrt.selection.strides import integer, natural, row_major_strides

__all__ = ["Extent", "Point", "checked_labels"]


def checked_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return ``labels`` as a tuple of distinct identifiers.

    Raises:
        TypeError: A lone string, or a label that is not a string.
        ValueError: A label that is not an identifier, or that comes twice.
    """
    if isinstance(labels, str):
        raise TypeError(f"labels must be a sequence of names, got the string {labels!r}")
    checked = tuple(labels)
    for label in checked:
        if not isinstance(label, str):
            raise TypeError(f"a dimension name must be a string, got {label!r}")
        if not label.isidentifier():
            raise ValueError(f"a dimension name must be an identifier such as 'gpus', got {label!r}")
    if len(set(checked)) != len(checked):
        twice = next(label for label in checked if checked.count(label) > 1)
        raise ValueError(f"Duplicate dimension name {twice!r} in {checked}")
    return checked


@final
class Extent(Mapping[str, int]):
    """Ordered dimensions and their sizes: a mapping from label to size that can be hashed.

    Two extents are equal when labels, sizes and order agree; an extent equals a dict with the same items.

    Args:
        labels: Distinct identifiers.
        sizes: One per label, each >= 0.
    Raises:
        TypeError, ValueError: The labels or sizes are not such.
    """

    __slots__ = ("_labels", "_nelements", "_places", "_sizes")

    def __init__(self, labels: Iterable[str], sizes: Iterable[SupportsIndex]) -> None:
        self._labels = checked_labels(labels)
        self._sizes = tuple(natural("a size", size) for size in sizes)
        if len(self._labels) != len(self._sizes):
            raise ValueError(f"expected one label for each size: labels {self._labels}, sizes {self._sizes}")
        self._derive()

    @classmethod
    def _make(cls, labels: tuple[str, ...], sizes: tuple[int, ...]) -> Extent:
        """Make an extent from labels and sizes that are known to be legal."""
        made = cls.__new__(cls)
        made._labels = labels
        made._sizes = sizes
        made._derive()
        return made

    def _derive(self) -> None:
        weights = row_major_strides(self._sizes)
        self._places = dict(zip(self._labels, zip(self._sizes, weights, strict=True), strict=True))
        self._nelements = weights[0] * self._sizes[0] if weights else 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The dimensions, slowest first."""
        return self._labels

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._sizes

    @property
    def nelements(self) -> int:
        """Number of points: the product of all sizes, 1 without dimensions."""
        return self._nelements

    def point(self, rank: SupportsIndex) -> Point:
        """Return the point at row-major ``rank``; ValueError unless ``0 <= rank < nelements``."""
        return Point(rank, self)

    def rank_of(self, coordinates: Mapping[str, SupportsIndex]) -> int:
        """Return the row-major rank of ``coordinates``, the inverse of ``point``.

        Raises:
            KeyError: A dimension is missing, or is not in this extent.
            IndexError: A coordinate is outside ``0 <= coordinate < size``.
        """
        for label in coordinates:
            if label not in self._places:
                raise KeyError(_no_dimension(label, self))
        rank = 0
        for label, (size, weight) in self._places.items():
            if label not in coordinates:
                raise KeyError(f"coordinate {label!r} is missing; {self} needs all of them")
            coordinate = integer(f"coordinate {label!r}", coordinates[label])
            if not 0 <= coordinate < size:
                raise IndexError(f"{label}={coordinate} is outside {self}: {label} has {size}, counted from 0")
            rank += coordinate * weight
        return rank

    def __getitem__(self, label: str) -> int:
        try:
            return self._places[label][0]
        except KeyError:
            raise KeyError(_no_dimension(label, self)) from None

    def __contains__(self, label: object) -> bool:
        return label in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Extent):
            return self._labels == other._labels and self._sizes == other._sizes
        return dict(self) == other if isinstance(other, dict) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._labels, self._sizes))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_extent, (self._labels, self._sizes)

    def __str__(self) -> str:
        return "{" + ", ".join(f"{label}: {size}" for label, size in self.items()) + "}"

    def __repr__(self) -> str:
        return f"Extent({self._labels}, {self._sizes})"


@final
class Point(Mapping[str, int]):
    """One coordinate in an extent: a mapping from label to coordinate, so ``mesh.slice(**point)`` works.

    Args:
        rank: Row-major position, ``0 <= rank < extent.nelements``.
        extent: The dimensions that it is a coordinate of.
    Raises:
        TypeError: The rank is not an integer.
        ValueError: The rank is outside the extent.
    """

    __slots__ = ("_extent", "_rank")

    def __init__(self, rank: SupportsIndex, extent: Extent) -> None:
        number = rank if type(rank) is int else integer("a rank", rank)
        if not 0 <= number < extent._nelements:
            ranks = f"{extent.nelements} rank" + ("" if extent.nelements == 1 else "s")
            raise ValueError(f"rank {number} is outside {extent}, which has {ranks}, counted from 0")
        self._rank = number
        self._extent = extent

    @property
    def rank(self) -> int:
        """The row-major position in ``extent``."""
        return self._rank

    @property
    def extent(self) -> Extent:
        """The dimensions that this is a coordinate of."""
        return self._extent

    def size(self, label: str) -> int:
        """Return the size of one dimension of the extent; KeyError when there is no such dimension."""
        return self._extent[label]

    def __getitem__(self, label: str) -> int:
        try:
            size, weight = self._extent._places[label]
        except KeyError:
            raise KeyError(_no_dimension(label, self._extent)) from None
        return self._rank // weight % size

    def __contains__(self, label: object) -> bool:
        return label in self._extent._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._extent._labels)

    def __len__(self) -> int:
        return len(self._extent._labels)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Point):
            return self._rank == other._rank and self._extent == other._extent
        return dict(self) == other if isinstance(other, dict) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._rank, self._extent))

    def __reduce__(self) -> tuple[object, ...]:
        return Point, (self._rank, self._extent)

    def __repr__(self) -> str:
        cells = (f"'{label}': {self[label]}/{size}" for label, size in self._extent.items())
        return "{" + ", ".join(cells) + "}"


def _no_dimension(label: object, extent: Extent) -> str:
    return f"no dimension {label!r} in {extent}"


def _rebuild_extent(labels: tuple[str, ...], sizes: tuple[int, ...]) -> Extent:
    return Extent._make(labels, sizes)

"""``ValueMesh``: one value per rank, with the shape of the mesh that was called."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from meshrt.selection import MeshTrait, Point, Shape, counted, fold_ranks, group_by_value

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ValueMesh"]

R = TypeVar("R")
_REPR_ROWS = 20
_REPR_WIDTH = 400


class ValueMesh(MeshTrait, Generic[R]):
    """Values in row-major order of ``shape``; slicing it slices the values.

    Args:
        shape: Labels and sizes.
        values: As many as the shape has ranks.
    Raises:
        ValueError: There are more or fewer.
    """

    def __init__(self, shape: Shape, values: Iterable[R]) -> None:
        self._values: Sequence[R] = list(values)
        if len(self._values) != len(shape):
            raise ValueError(
                f"invalid value mesh: {shape} needs {counted(len(shape), 'value')}, not {len(self._values)}"
            )
        self._own_shape = shape

    @classmethod
    def from_indexed(cls, shape: Shape, pairs: Iterable[tuple[int, R]]) -> Self:
        """Make one from ``(rank, value)`` pairs in any order; the last of a rank counts, none may be missing."""
        found = dict(pairs)
        missing = [rank for rank in range(len(shape)) if rank not in found]
        if missing:
            raise ValueError(f"invalid value mesh: no value for ranks {fold_ranks(missing)} of {shape}")
        return cls(shape, [found[rank] for rank in range(len(shape))])

    @property
    def _shape(self) -> Shape:
        return self._own_shape

    def _with_shape(self, shape: Shape) -> Self:
        own = self._own_shape.ndslice
        return type(self)(shape, [self._values[own.index(rank)] for rank in shape.ndslice])

    def values(self) -> list[R]:
        """Return the values in rank order."""
        return list(self._values)

    def items(self) -> list[tuple[Point, R]]:
        """Return ``(point, value)`` pairs in rank order; the points count from 0 in this mesh."""
        extent = self._own_shape.extent
        return [(extent.point(rank), value) for rank, value in enumerate(self._values)]

    def __iter__(self) -> Iterator[tuple[Point, R]]:
        return iter(self.items())

    def item(self, **coordinates: int) -> R:
        """Return the value at a point: every dimension must be given.

        Raises:
            KeyError: A dimension is missing, or does not exist.
            IndexError: A coordinate is outside its dimension.
        """
        extent = self._own_shape.extent
        extra = [label for label in coordinates if label not in extent]
        if extra:
            raise KeyError(f"item has extra dimensions: {extra}; this mesh has {self._own_shape}")
        rank = 0
        for label, size in extent.items():
            if label not in coordinates:
                raise KeyError(f"item needs every dimension of {self._own_shape}, {label!r} is missing")
            index = coordinates[label]
            if not 0 <= index < size:
                raise IndexError(f"{label}={index} is outside {self._own_shape}")
            rank = rank * size + index
        return self._values[rank]

    def get(self, rank: int) -> R:
        """Return the value of a rank of this mesh. Raises IndexError."""
        if not 0 <= rank < len(self._values):
            raise IndexError(f"rank {rank} is out of range: {self._own_shape} has {counted(len(self._values))}")
        return self._values[rank]

    # -- one value out of many

    @overload
    def reduce(self, function: Callable[[R, R], R]) -> R: ...

    @overload
    def reduce(self, function: Callable[[R, R], R], over: str | Iterable[str]) -> ValueMesh[R]: ...

    def reduce(self, function: Callable[[R, R], R], over: str | Iterable[str] | None = None) -> R | ValueMesh[R]:
        """Combine the values in rank order: ``function(function(first, second), third)`` and so on.

        Args:
            function: Combines two values.
            over: The dimension, or dimensions, whose values are combined; None: all of them.
        Returns:
            The combined value; with ``over``, a `ValueMesh` with the other dimensions.
        Raises:
            KeyError: There is no such dimension.
        """
        if over is None:
            return functools.reduce(function, self._values)
        combined = {over} if isinstance(over, str) else set(over)
        sizes = self.sizes
        unknown = sorted(combined - sizes.keys())
        if unknown:
            raise KeyError(f"there is no dimension {unknown[0]!r} in {self._own_shape}")
        kept = {label: size for label, size in sizes.items() if label not in combined}
        values = [
            functools.reduce(function, self.slice(**dict(zip(kept, point, strict=True)))._values)
            for point in itertools.product(*map(range, kept.values()))
        ]
        return ValueMesh(Shape.from_extent(kept), values)

    @overload
    def sum(self) -> R: ...

    @overload
    def sum(self, over: str | Iterable[str]) -> ValueMesh[R]: ...

    def sum(self, over: str | Iterable[str] | None = None) -> R | ValueMesh[R]:
        """Add the values up, arrays element by element; ``over``: as in `reduce`."""
        return self._combine(operator.add, over)

    @overload
    def max(self) -> R: ...

    @overload
    def max(self, over: str | Iterable[str]) -> ValueMesh[R]: ...

    def max(self, over: str | Iterable[str] | None = None) -> R | ValueMesh[R]:
        """Return the largest value; ``over``: as in `reduce`. For arrays: ``reduce(numpy.maximum)``."""
        return self._combine(max, over)

    @overload
    def min(self) -> R: ...

    @overload
    def min(self, over: str | Iterable[str]) -> ValueMesh[R]: ...

    def min(self, over: str | Iterable[str] | None = None) -> R | ValueMesh[R]:
        """Return the smallest value; ``over``: as in `reduce`. For arrays: ``reduce(numpy.minimum)``."""
        return self._combine(min, over)

    def _combine(self, function: Callable[[Any, Any], Any], over: str | Iterable[str] | None) -> R | ValueMesh[R]:
        return self.reduce(function) if over is None else self.reduce(function, over)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the values as one array: the dimensions of this mesh, then those of a value.

        Values are numbers, arrays or tensors of torch on the CPU, all of one shape.

        Raises:
            ValueError: The values have different shapes.
            ModuleNotFoundError: numpy is not installed.
        """
        import numpy as np  # optional: values of other kinds need no numpy

        arrays = [np.asarray(value) for value in self._values]
        shapes = group_by_value((rank, array.shape) for rank, array in enumerate(arrays))
        if len(shapes) > 1:
            found = "; ".join(f"ranks {fold_ranks(ranks)}: {shape}" for ranks, shape in shapes[:_REPR_ROWS])
            raise ValueError(f"the values have different shapes, so they cannot form one array: {found}")
        return np.stack(arrays).reshape((*self._own_shape.extent.sizes, *arrays[0].shape))

    def __repr__(self) -> str:
        """Show equal values once, with the ranks that have them."""
        rows, left = self._rows()
        lines = [f"  [{ranks}] {text}" for ranks, text in rows]
        return "\n".join([f"ValueMesh{self._own_shape}:", *lines, *([f"  {left}"] if left else ())])

    def _repr_html_(self) -> str:
        """As `__repr__`, for notebooks."""
        from meshrt.show.table import html_table  # start-up: for notebooks only

        return html_table(f"ValueMesh{self._own_shape}", ("ranks", "value"), *self._rows())

    def _rows(self) -> tuple[list[tuple[str, str]], str]:
        """Return ranks and value of each row, and what is not shown."""
        groups = group_by_value((rank, _Shown(value)) for rank, value in enumerate(self._values))
        rows = [(fold_ranks(ranks), shown.text) for ranks, shown in groups[:_REPR_ROWS]]
        if len(groups) <= _REPR_ROWS:
            return rows, ""
        left = sum(len(ranks) for ranks, _ in groups[_REPR_ROWS:])
        return rows, f"... {counted(left, 'more rank')}, {counted(len(groups) - _REPR_ROWS, 'more value')}"


class _Shown:
    """A value as its text: values with equal text are folded, whatever ``==`` of the value would do (arrays, NaN)."""

    __slots__ = ("text",)

    def __init__(self, value: object) -> None:
        text = repr(value)
        self.text = text if len(text) <= _REPR_WIDTH else f"{text[:_REPR_WIDTH]}... ({len(text)} characters)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shown) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

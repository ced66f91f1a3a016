"""Operations on the shape of a mesh: slice, split, flatten, rename, size. ``MeshTrait`` and the grammar call these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsIndex, cast

from meshrt.selection.extent import checked_labels
from meshrt.selection.shape import Shape
from meshrt.selection.slices import Slice
from meshrt.selection.strides import integer, row_major_strides

__all__ = ["flatten_shape", "rename_shape", "size_of", "slice_shape", "split_shape"]


def slice_shape(shape: Shape, selectors: Mapping[str, object]) -> Shape:
    """Return the part of ``shape`` that ``selectors`` name, taken in their order.

    Args:
        shape: Sizes ``(d0, ..., dk)``.
        selectors: Dimension to an index, which removes the dimension, or to a slice, which keeps it. Bounds of slices
            clamp and may count from the end; an index must be ``0 <= index < size``.
    Raises:
        TypeError: No such dimension, or a selector that is neither an integer nor a slice.
        IndexError: An index is outside its dimension.
        ValueError: A slice leaves nothing, or its step is zero or negative.
    Source: MeshTrait.slice of Monarch; slices that make strides interleave are accepted here.
    """
    for label, selector in selectors.items():
        if label not in shape.labels:
            from meshrt.selection.grammar.complaints import near_miss  # start-up: `difflib`

            hint = near_miss(label, shape.labels)
            raise TypeError(f"Shape does not have dimension labeled {label!r}: {shape}{hint}")
        if isinstance(selector, slice):
            shape = shape.select(label, selector)
            continue
        if not hasattr(selector, "__index__"):
            raise TypeError(f"dimension {label!r} is sliced with an integer or a slice, got {selector!r}")
        index = integer(f"the index of dimension {label!r}", cast(SupportsIndex, selector))
        size = shape.ndslice.sizes[shape.labels.index(label)]
        if not 0 <= index < size:
            raise IndexError(f"index out of range: {label}={index}, but {label} has size {size} in {shape}")
        shape = shape.at(label, index)
    return shape


def split_shape(shape: Shape, requests: Mapping[str, object]) -> Shape:
    """Return ``shape`` with some dimensions divided into new ones, in place and in order.

    Args:
        shape: Sizes ``(d0, ..., dk)``.
        requests: Existing dimension to the sequence of names that replaces it, and new name to its size. One size per
            divided dimension may be left out. An empty sequence removes a dimension of size 1.
    Raises:
        TypeError: A value is not a sequence of names.
        ValueError: The sizes do not divide the dimension, cannot be inferred, or are unused; a name comes twice.
    Source: MeshTrait.split of Monarch.
    """
    names_of, given = _sort_requests(shape, requests)
    ndslice = shape.ndslice
    labels: list[str] = []
    sizes: list[int] = []
    strides: list[int] = []
    for label, size, stride in zip(shape.labels, ndslice.sizes, ndslice.strides, strict=True):
        names = names_of.get(label)
        if names is None:
            labels.append(label)
            sizes.append(size)
            strides.append(stride)
            continue
        parts = _divide(label, size, names, given)
        labels += names
        sizes += parts
        strides += [stride * step for step in row_major_strides(parts)]
    checked = checked_labels(labels)
    unused = tuple(name for name in given if name not in checked)
    if unused:
        raise ValueError(f"unused size constraints: {unused}; no dimension is split into them")
    return Shape._make(checked, Slice._make(ndslice.offset, tuple(sizes), tuple(strides)))


def rename_shape(shape: Shape, names: Mapping[str, object]) -> Shape:
    """Return ``shape`` with new names for some dimensions.

    Raises:
        TypeError: A new name is not a string.
        ValueError: No such dimension, a new name is not an identifier, or a name would come twice.
    """
    for label in names:
        if label not in shape.labels:
            raise ValueError(f"{label!r} is not an existing dim of {shape}")
    labels = checked_labels(cast(str, names.get(label, label)) for label in shape.labels)
    return Shape._make(labels, shape.ndslice)


def flatten_shape(shape: Shape, name: str) -> Shape:
    """Return ``shape`` as one dimension ``name``; ValueError unless its ranks follow each other without gaps."""
    ndslice = shape.ndslice
    ranks = ndslice.as_range()
    if ranks is None or ranks.step != 1:
        raise ValueError(
            f"cannot flatten sparse mesh: the ranks of {shape} do not follow each other "
            f"(sizes {ndslice.sizes}, strides {ndslice.strides})"
        )
    return Shape._make(checked_labels((name,)), Slice._make(ndslice.offset, (len(ranks),), (1,)))


def size_of(shape: Shape, dim: str | Iterable[str] | None = None) -> int:
    """Return the size of one dimension, the product over several, or the number of ranks; KeyError if unknown."""
    if dim is None:
        return len(shape)
    if isinstance(dim, str):
        return shape.extent[dim]
    return math.prod(shape.extent[label] for label in dim)


def _sort_requests(shape: Shape, requests: Mapping[str, object]) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    names_of: dict[str, tuple[str, ...]] = {}
    given: dict[str, int] = {}
    for key, value in requests.items():
        if key not in shape.labels:
            if not isinstance(value, int):
                raise ValueError(
                    f"{key!r} is not an existing dim of {shape}. Expected an integer size constraint on a new dim."
                )
            given[key] = int(value)
        elif isinstance(value, str):
            raise ValueError(f"expected a sequence of dimensions to split {key!r} into, but got {value!r}")
        elif not isinstance(value, Iterable):
            raise TypeError(f"expected a sequence of dimensions to split {key!r} into, but got {value!r}")
        else:
            names_of[key] = tuple(value)
    return names_of, given


def _divide(label: str, size: int, names: Sequence[str], given: Mapping[str, int]) -> list[int]:
    """Return the sizes of ``names``, which together make up dimension ``label`` of ``size``."""
    checked_labels(names)
    missing = [name for name in names if name not in given]
    if len(missing) > 1:
        raise ValueError(
            f"Cannot infer size of {tuple(names)} because {' and '.join(missing)} have unknown size. "
            f"Specify all but one as arguments, e.g. {missing[-1]}=2"
        )
    parts = {name: given[name] for name in names if name in given}
    for name, part in parts.items():
        if part < 1:
            raise ValueError(f"{name}={part}: a part of dimension {label!r} must have a size of at least 1")
    known = math.prod(parts.values())
    if size % known or (not missing and known != size):
        shown = tuple(parts.get(name, "?") for name in names)
        divisors = f"{tuple(names)} with sizes {shown}"
        raise ValueError(f"Dimension {label!r} of size {size} is not evenly divided by {divisors}")
    return [parts.get(name, size // known) for name in names]

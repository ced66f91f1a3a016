"""``MeshTrait``: what everything that has a shape can do with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

from meshrt.selection import views
from meshrt.selection.extent import Extent
from meshrt.selection.shape import Shape

__all__ = ["MeshTrait"]


class MeshTrait(ABC):
    """Base of host meshes, proc meshes, actor meshes and value meshes.

    A subclass provides the property ``_shape`` and ``_with_shape``, which makes the same kind of mesh over another
    shape. ``_with_shape`` is only ever called with shapes whose ranks are among those of ``_shape``.
    """

    @property
    @abstractmethod
    def _shape(self) -> Shape: ...

    @abstractmethod
    def _with_shape(self, shape: Shape) -> Self: ...

    def slice(self, /, **selectors: object) -> Self:
        """Return the part of this mesh at an index or a slice of some dimensions.

        ``mesh.slice(hosts=1, gpus=slice(2, 6))``: an index removes the dimension, a slice keeps it.

        Raises:
            TypeError: No such dimension, or a selector that is neither an integer nor a slice.
            IndexError: An index is outside its dimension (negative ones too).
            ValueError: A slice leaves nothing, or its step is zero or negative.
        """
        return self._with_shape(views.slice_shape(self._shape, selectors))

    def split(self, /, **requests: object) -> Self:
        """Return this mesh with some dimensions divided into new ones; one size per dimension may be left out.

        ``mesh.split(hosts=("dp", "pp"), gpus=("tp", "cp"), pp=16, cp=2)``

        Raises:
            TypeError: A value is not a sequence of names.
            ValueError: The sizes do not divide the dimension, cannot be inferred, or are unused; a name comes twice.
        """
        return self._with_shape(views.split_shape(self._shape, requests))

    def rename(self, /, **names: object) -> Self:
        """Return this mesh with new names for some dimensions: ``mesh.rename(hosts="dp", gpus="tp")``.

        Raises:
            TypeError: A new name is not a string.
            ValueError: No such dimension, a new name is not an identifier, or a name would come twice.
        """
        return self._with_shape(views.rename_shape(self._shape, names))

    def flatten(self, name: str) -> Self:
        """Return this mesh as one dimension ``name``; ValueError when its ranks have gaps between them."""
        return self._with_shape(views.flatten_shape(self._shape, name))

    def select(self, text: str) -> Self:
        """Return the part of this mesh that a selection such as ``"hosts=0, gpus=1:3"`` denotes.

        Dims with indices and ranges give what ``slice`` gives. Any other expression gives one dimension ``ranks``,
        provided that its ranks are evenly spaced.

        Raises:
            SelectionError: The text does not parse, names what does not exist, selects nothing, or selects ranks that
                are not evenly spaced.
        """
        from meshrt.selection.grammar import select  # start-up: only the text form needs a parser

        return self._with_shape(select(self._shape, text))

    def size(self, dim: str | Iterable[str] | None = None) -> int:
        """Return the number of ranks, the size of one dimension, or the product of several; KeyError if unknown."""
        return views.size_of(self._shape, dim)

    @property
    def sizes(self) -> dict[str, int]:
        """Dimension to size, in order."""
        return dict(self._shape.extent)

    @property
    def extent(self) -> Extent:
        """The dimensions and their sizes."""
        return self._shape.extent

    def __len__(self) -> int:
        return len(self._shape)

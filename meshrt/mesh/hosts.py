"""Which hosts a mesh is to have, and which hosts a mesh has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from meshrt.errors import UsageError
from meshrt.mesh.default_engine import default_engine
from meshrt.selection import Shape, Slice

if TYPE_CHECKING:
    from meshrt.mesh.engine import Engine

__all__ = ["Hosts", "first_ranks", "on_this_machine"]


class Hosts(NamedTuple):
    """Which hosts a mesh is to have.

    Attributes:
        engine: Places them; None: the default one. Not used with ``mesh_id``.
        size: How many the engine is to place; None: the mesh says.
        mesh_id: Of a mesh: they are hosts of its ranks. "": of none.
        members: Which of those, in order: places among what the engine has placed, or base ranks of that mesh.
            Empty: all, or what is usual.
    """

    engine: Engine | None = None
    size: int | None = None
    mesh_id: str = ""
    members: tuple[int, ...] = ()


def on_this_machine() -> Hosts:
    """Return the host of the script, also where the default engine places meshes on other ones."""
    if default_engine() is None:
        return Hosts()
    from meshrt.mesh.placement import local_engine  # start-up: only where meshes are placed on other hosts, too

    return Hosts(local_engine())


def first_ranks(shape: Shape, host_of: Callable[[int], int]) -> Shape:
    """Return the first rank of each host of a view, as a view: with the dimension ``hosts``, or none for one host.

    Args:
        host_of: Returns the number of the host of a base rank; used where the view has no such dimension.
    Raises:
        UsageError: There is no such dimension, and the first ranks are not evenly spaced.
    """
    if "hosts" in shape.labels:
        for label in shape.labels:
            shape = shape if label == "hosts" else shape.at(label, 0)
        return shape
    firsts: dict[int, int] = {}
    for rank in shape.ndslice:
        firsts.setdefault(host_of(rank), rank)
    first, *others = firsts.values()
    if not others:
        return Shape((), Slice(offset=first, sizes=(), strides=()))
    step = others[0] - first
    if step <= 0 or [*firsts.values()] != [*range(first, first + step * len(firsts), step)]:
        raise UsageError(
            f"{len(shape)} ranks on {len(firsts)} hosts are not spread evenly; give the mesh a dimension hosts"
        )
    return Shape(("hosts",), Slice(offset=first, sizes=(len(firsts),), strides=(step,)))

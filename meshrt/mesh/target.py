"""The target of a call: an actor, on the ranks of a view."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

import msgpack

from meshrt.errors import RankPlace
from meshrt.hooks.fate import Fate
from meshrt.selection import Shape, Slice
from meshrt.transport.driver import Driver
from meshrt.transport.outlink import OutLink
from meshrt.wire.addresses import MeshAddress

if TYPE_CHECKING:
    import asyncio

__all__ = ["Target"]


class Target:
    """An actor on the ranks of ``shape``; finds (and keeps) the links to them.

    Args:
        mesh_id, name: The identity of the actor.
        address: Where its ranks listen.
        shape: The view: labels, and a slice of base ranks.
        whole: The mesh that it is a view of.
        about: ``about(rank) -> (host, pid)`` where this process knows it.
    """

    __slots__ = (
        "_about",
        "_links",
        "_links_of",
        "_middles",
        "address",
        "gates",
        "mesh_id",
        "name",
        "shape",
        "view",
        "whole",
    )

    def __init__(
        self,
        mesh_id: str,
        name: str,
        address: MeshAddress,
        shape: Shape,
        whole: Shape,
        about: Callable[[str, int], tuple[str, int]],
    ) -> None:
        self.mesh_id = mesh_id
        self.name = name
        self.address = address
        self.shape = shape
        self.whole = whole
        self.view: bytes = msgpack.packb(shape.to_wire())
        self._about = about
        self._middles: dict[str, bytes] = {}
        self._links: list[OutLink] = []
        self._links_of: Driver | None = None
        #: Where tasks wait for room, by event loop (`meshrt.mesh.room`).
        self.gates: MutableMapping[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def links(self, driver: Driver) -> list[OutLink]:
        """Return the links to the ranks, in the order of the view."""
        if self._links_of is not driver:
            self._links = [
                driver.link_to((self.mesh_id, rank, self.name), self.address.rank(self.mesh_id, rank))
                for rank in self.shape.ndslice
            ]
            self._links_of = driver
        return self._links

    def fates(self) -> list[Fate | None]:
        """Return how the ranks that were called have ended, as far as this process knows, in the order of the view."""
        return [out.fate for out in self._links]

    def middle(self, endpoint: str) -> bytes:
        """Return endpoint and view, packed as in the header of every CALL."""
        packed = self._middles.get(endpoint)
        if packed is None:
            packed = self._middles[endpoint] = msgpack.packb(endpoint) + msgpack.packb(self.view)
        return packed

    def place(self, position: int) -> RankPlace:
        """Say which rank is at a position: its coordinates in the mesh, and further ones that the view named."""
        rank = self.shape.ndslice[position]
        coordinates = self.whole.coordinates(rank)
        for label, index in self.shape.extent.point(position).items():
            coordinates.setdefault(label, index)
        host, pid = self._about(self.mesh_id, rank)
        return RankPlace(self.mesh_id, self.name, rank, tuple(coordinates.items()), host, pid)

    def position(self, mesh_id: str, rank: int) -> int | None:
        """Return the position of a base rank in it; None if it has none."""
        if mesh_id != self.mesh_id:
            return None
        try:
            return self.shape.ndslice.index(rank)
        except ValueError:
            return None

    def only(self, position: int) -> Target:
        """Return the target that is the rank at ``position`` alone, and sends it the view of this one."""
        target = self.one(position)
        target.view = self.view
        return target

    def one(self, position: int) -> Target:
        """Return the target that is the rank at ``position`` alone (a view without dimensions)."""
        rank = self.shape.ndslice[position]
        shape = Shape((), Slice(offset=rank, sizes=(), strides=()))
        return Target(self.mesh_id, self.name, self.address, shape, self.whole, self._about)

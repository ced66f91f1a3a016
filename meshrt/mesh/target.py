"""The target of a call: an actor, on the ranks of a view."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING

import msgpack

from meshrt.hooks.fate import Fate
from meshrt.origins import RankPlace
from meshrt.selection import Shape, Slice
from meshrt.transport.driver import Driver
from meshrt.transport.outlink import OutLink
from meshrt.transport.process import ProcessRuntime, current_runtime
from meshrt.wire.addresses import MeshAddress
from meshrt.wire.frames import split_frames
from meshrt.wire.messages import CANCEL, CANCELS, CUT, URGENT

if TYPE_CHECKING:
    import asyncio

    from meshrt.mesh.foreign import ForeignProgram

__all__ = ["Target"]


class Target:
    """An actor on the ranks of ``shape``; finds (and keeps) the links to them.

    Args:
        mesh_id, name: The identity of the actor.
        address: Where its ranks listen.
        shape: The view: labels, and a slice of base ranks.
        whole: The mesh that it is a view of.
        about: ``about(rank) -> (host, pid)`` where this process knows it.
        program: The program of the actor; None: that of this process.
        suffix: `URGENT`: its links are those of urgent calls.
        spawn_id: Of the `spawn` that this is the handle of: if it is refused, as another actor has the name, so are the
            calls. b"": of none.

    Attributes:
        runtime: Returns the program as this process sees it. Raises MeshError.
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
        "program",
        "runtime",
        "shape",
        "spawn_id",
        "suffix",
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
        program: ForeignProgram | None = None,
        suffix: str = "",
        spawn_id: bytes = b"",
    ) -> None:
        self.mesh_id: str = mesh_id
        self.name: str = name
        self.address: MeshAddress = address
        self.shape: Shape = shape
        self.whole: Shape = whole
        self.spawn_id: bytes = spawn_id
        self.view: bytes = msgpack.packb([*shape.to_wire(), spawn_id])
        self._about = about
        self.suffix: str = suffix
        self.program: ForeignProgram | None = program
        self.runtime: Callable[[], ProcessRuntime] = (
            current_runtime if program is None else functools.partial(program.runtime, name)
        )
        self._middles: dict[str, bytes] = {}
        self._links: list[OutLink] = []
        self._links_of: Driver | None = None
        #: Where tasks wait for room, by event loop (`meshrt.mesh.room`).
        self.gates: MutableMapping[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def links(self, driver: Driver) -> list[OutLink]:
        """Return the links to the ranks, in the order of the view."""
        if self._links_of is not driver:
            self._links = [
                driver.link_to((self.mesh_id, rank, self.name + self.suffix), self.address.rank(self.mesh_id, rank))
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
        return self.view_of(shape)

    def view_of(self, shape: Shape) -> Target:
        """Return the target that is a part of this one."""
        return self._like(shape, self.program, self.suffix)

    def urgent(self) -> Target:
        """Return this target with links of its own, whose calls overtake those on the others."""
        return self._like(self.shape, self.program, URGENT)

    def _like(self, shape: Shape, program: ForeignProgram | None, suffix: str) -> Target:
        whole, about = self.whole, self._about
        return Target(self.mesh_id, self.name, self.address, shape, whole, about, program, suffix, self.spawn_id)

    def cancel(self, driver: Driver, call_id: int, *, interrupt: bool) -> None:
        """Tell the ranks that have not answered a call that its answer is not wanted any more. Never blocks."""
        frame = split_frames(CANCEL, [call_id, interrupt, self.name], [])
        driver.shield.close()
        try:
            for position, out, beside in self._unanswered(driver, call_id):
                for link in (out, beside):
                    driver.send(link, frame, call_id, None, position)
        finally:
            driver.shield.open()

    def cut(self, driver: Driver, call_id: int) -> None:
        """Tell the ranks that have not answered a STOP that its grace is over. Never blocks."""
        frame = split_frames(CUT, [call_id, self.name], [])
        driver.shield.close()
        try:
            for position, _, beside in self._unanswered(driver, call_id):
                driver.send(beside, frame, call_id, None, position)
        finally:
            driver.shield.open()

    def _unanswered(self, driver: Driver, call_id: int) -> Iterator[tuple[int, OutLink, OutLink]]:
        """Return where a message is not answered: its position, its link, and the one beside it."""
        for position, out in enumerate(self.links(driver)):
            if call_id in out.outstanding:
                rank = self.shape.ndslice[position]
                key = self.mesh_id, rank, CANCELS
                yield position, out, driver.link_to(key, self.address.rank(self.mesh_id, rank))

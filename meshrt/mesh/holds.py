"""Which ranks a user holds (at a breakpoint, for example): deadlines are suspended everywhere while there are any."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.mesh.registry import Registry
from meshrt.transport.driver import Driver
from meshrt.wire.control import Address
from meshrt.wire.operations import Held, Hold

__all__ = ["Holds"]


class Holds:
    """The holds of one program. On the root's loop.

    Args:
        registry: Its meshes.
        driver: Has the clock of the root's own deadlines.
        tell: Runs an operation on a rank: ``tell(mesh id, rank, operation)``.
    """

    def __init__(self, registry: Registry, driver: Driver, tell: Callable[[str, int, Hold], None]) -> None:
        self._registry = registry
        self._driver = driver
        self._tell_rank = tell
        #: How often each rank is held.
        self._counts: dict[Address, int] = {}

    def any(self) -> bool:
        """Whether a user holds a rank. Any thread."""
        return bool(self._counts)

    def of(self, mesh_id: str, rank: int) -> bool:
        """Whether a user holds this rank. Any thread."""
        return (mesh_id, rank) in self._counts

    def change(self, mesh_id: str, rank: int, held: Held) -> None:
        """A rank reports that the debugger has stopped a thread of it, or has resumed one."""
        address = (mesh_id, rank)
        before = self.any()
        count = self._counts.get(address, 0) + (1 if held.held else -1)
        if count > 0:
            self._counts[address] = count
        else:
            self._counts.pop(address, None)
        self._tell(before)

    def born(self, mesh_id: str, rank: int) -> None:
        """A rank serves. If others are held, its deadlines are suspended too."""
        if self.any():
            self._tell_rank(mesh_id, rank, Hold(True))

    def gone(self, mesh_id: str, rank: int) -> None:
        """A rank has ended: it is not held any more."""
        before = self.any()
        self._counts.pop((mesh_id, rank), None)
        self._tell(before)

    def _tell(self, before: bool) -> None:
        """Suspend or resume the deadlines, if that has changed."""
        if before == self.any():
            return
        self._driver.clock.hold(not before)
        self._driver.wake()
        for record in self._registry.running():
            for rank in record.alive():
                self._tell_rank(record.mesh_id, rank, Hold(not before))

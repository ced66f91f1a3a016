"""Which output of ranks is shown live: what holds for each mesh. A mesh has its own setting, or that of the program."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from meshrt.mesh.record import MeshRecord
from meshrt.mesh.shown import Shown
from meshrt.selection import Shape

__all__ = ["Live", "LiveLogs"]


class Live(NamedTuple):
    """What holds for a mesh.

    Attributes:
        shown: The setting.
        scope: What has it: the id of the mesh, or "" for the program.
        ranks: Those that are shown.
    """

    shown: Shown
    scope: str
    ranks: frozenset[int]


class LiveLogs:
    """The settings of one program. Any thread.

    Args:
        shown: That of the program.
    """

    def __init__(self, shown: Shown) -> None:
        self._program = self._first = shown
        #: What `of` has returned, with the settings and the shape that it was made of.
        self._known: WeakKeyDictionary[MeshRecord, tuple[Shown | None, Shown, Shape, Live]] = WeakKeyDictionary()

    def set_program(self, shown: Shown | None) -> None:
        """Change it for all meshes that have no setting of their own; None: back to what the program began with."""
        self._program = shown or self._first

    def set_mesh(self, record: MeshRecord, shown: Shown | None) -> None:
        """Change it for one mesh; None: that of the program holds.

        Raises:
            SelectionError: The mesh has no such ranks.
        """
        if shown is not None:
            shown.members(record.shape, strict=True)
        record.shown = shown

    def of(self, record: MeshRecord) -> Live:
        """Return what holds for a mesh."""
        own, program, shape = record.shown, self._program, record.shape
        known = self._known.get(record)
        if known is not None and known[0] is own and known[1] is program and known[2] is shape:
            return known[3]
        if own is None:
            live = Live(program, "", program.members(shape))
        else:  # its dimensions may have got other names since it was checked
            live = Live(own, record.mesh_id, own.members(shape))
        self._known[record] = own, program, shape, live
        return live

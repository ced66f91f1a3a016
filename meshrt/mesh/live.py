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
        #: What `of` has returned, with the shape that it was made of.
        self._known: WeakKeyDictionary[MeshRecord, tuple[Live, Shape]] = WeakKeyDictionary()

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
        shown, scope = (self._program, "") if record.shown is None else (record.shown, record.mesh_id)
        live, shape = self._known.get(record, (None, None))
        if live is None or live.shown is not shown or live.scope != scope or shape is not record.shape:
            live = Live(shown, scope, shown.members(record.shape))  # dimensions may have got other names meanwhile
            self._known[record] = live, record.shape
        return live

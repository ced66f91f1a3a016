"""The process groups of a rank, as it tells them to the root; and from these the dimensions of a script's device mesh.

A mesh of `torch.distributed.device_mesh` makes a group for each of its dimensions. Those of one rank say how many ranks
each dimension has, and how far apart they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshrt.collectives.facts import GroupFacts, GroupsMade, members_of
from meshrt.collectives.torch_groups import read_world, which_groups
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.services import RankServices
from meshrt.selection import Shape
from meshrt.wire.operations import DimensionsNamed

__all__ = ["DEFAULT", "GroupReports", "dimensions_of"]

#: What the dimensions of a script are called until it names them itself.
DEFAULT = ("hosts", "gpus")


def dimensions_of(groups: Sequence[GroupFacts], size: int) -> dict[str, int] | None:
    """Return the dimensions of the first device mesh that has all ranks, in order, and their sizes.

    Args:
        groups: Of a rank, in the order in which they were made.
        size: How many ranks there are.
    Returns:
        None: there is no such mesh, or ranks are not numbered as in one, row by row.
    """
    named = [group for group in groups if group.dimension and group.name.isidentifier()]
    for first in range(len(named)):
        for last in range(len(named), first, -1):  # the longest: the last dimensions may have one rank
            part = [(group.name, sorted(members_of(group.ranks))) for group in named[first:last]]
            if _is_mesh(part, size):
                return {name: len(members) for name, members in part}
    return None


def _is_mesh(part: Sequence[tuple[str, Sequence[int]]], size: int) -> bool:
    if len({name for name, _ in part}) < len(part) or math.prod(len(members) for _, members in part) != size:
        return False
    stride = size
    for _, members in part:
        stride //= len(members)
        if list(members) != [members[0] + index * stride for index in range(len(members))]:
            return False
    return True


class GroupReports:
    """Tells the root which process groups there are, and how a script's device mesh calls the dimensions.

    On the control thread.
    """

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._known: Sequence[int] = ()

    def pulse(self) -> None:
        """Look whether there are others than before."""
        known = which_groups()
        if list(known) == list(self._known):
            return
        self._known = known
        world = read_world((), numbers=False)
        self._services.report(GroupsMade(sorted({group.name for group in world.groups} if world is not None else ())))
        if world is None:
            return
        for actor in self._services.actors():
            if actor.call is not None and actor.script is not None and world.rank == actor.call.rank:
                self._name_dimensions(actor.call, world.groups)

    def _name_dimensions(self, call: EndpointCall, groups: Sequence[GroupFacts]) -> None:
        shape = Shape.from_wire(call.view)
        found = dimensions_of(groups, len(shape)) if shape.labels == DEFAULT else None
        if found is not None:
            call.view = Shape.from_extent(found).to_wire()
            self._services.report(DimensionsNamed(list(found.items())))

"""The process groups of a rank, and the dimensions of its script's device mesh, as it tells them to the root.

Torch keeps no list of device meshes, and a dimension of all ranks has no group of its own but the default one. So a
mesh is looked for among the objects that refer to the class, once that has another number of references than before.
This takes some milliseconds, more in a process with millions of objects, and no more than a hundredth of the time. What
is read is private to torch, or may be under construction: what is missing or different leads to no mesh, never to an
error.
"""

from __future__ import annotations

import gc
import math
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from meshrt.collectives.facts import GroupsMade
from meshrt.collectives.torch_groups import dimension_names, read_world, which_groups
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.services import RankServices
from meshrt.selection import Shape
from meshrt.wire.operations import DimensionsNamed

__all__ = ["DEFAULT", "DeviceMesh", "DeviceMeshes", "GroupReports"]

#: What the dimensions of a script are called until it names them itself.
DEFAULT = ("hosts", "gpus")
_MODULE = "torch.distributed.device_mesh"
_GROUPS = "torch.distributed.distributed_c10d"
#: For one second of looking, seconds without.
_REST = 100.0


class DeviceMesh(NamedTuple):
    """A mesh of all ranks, in order.

    Attributes:
        sizes: Of its dimensions, by their names.
        names: Those of its process groups, by torch's names of them.
    """

    sizes: Mapping[str, int]
    names: Mapping[str, str]


class DeviceMeshes:
    """Knows the first mesh of all ranks that the script has made; of several at once the one with most dimensions.

    On the control thread.
    """

    def __init__(self) -> None:
        self.found: DeviceMesh | None = None
        self._references = 0
        self._world: Callable[[], object] = lambda: None
        self._again = 0.0

    def look(self) -> DeviceMesh | None:
        """Return the mesh, which is looked for if it is not known; None: there is none."""
        module = sys.modules.get(_MODULE)
        world = getattr(getattr(sys.modules.get(_GROUPS), "_world", None), "default_pg", None)
        if world is None or world is not self._world():
            dimension_names.clear()
            self.found, self._references = None, 0
        if module is None or world is None or self.found is not None or time.monotonic() < self._again:
            return self.found
        self._world = weakref.ref(world)
        begun = time.monotonic()
        try:
            self._look(module, int(world.size()))
        except Exception:
            self._references = 0
        self._again = time.monotonic() + _REST * (time.monotonic() - begun)
        return self.found

    def _look(self, module: ModuleType, size: int) -> None:
        references = sys.getrefcount(module.DeviceMesh)
        if references == self._references:
            return
        self._references = references
        made = [each for each in gc.get_referrers(module.DeviceMesh) if type(each) is module.DeviceMesh]
        found = [mesh for mesh in map(_read, made) if list(mesh.sizes) and math.prod(mesh.sizes.values()) == size]
        self.found = max(found, key=lambda mesh: (len(mesh.sizes), sorted(mesh.names)), default=None)
        dimension_names.update(self.found.names if self.found is not None else {})


def _read(mesh: Any) -> DeviceMesh:
    """Return a mesh; without dimensions: they have no names, or the ranks are not in order."""
    labels = list(mesh.mesh_dim_names or ())
    in_order = mesh.mesh.flatten().tolist() == list(range(mesh.mesh.numel()))
    if not in_order or not labels or not all(map(str.isidentifier, labels)):
        return DeviceMesh({}, {})
    keys = [str(mesh.get_group(index).group_name) for index in range(len(labels))]
    return DeviceMesh(dict(zip(labels, mesh.mesh.shape, strict=True)), dict(zip(keys, labels, strict=True)))


class GroupReports:
    """Tells the root which process groups there are, and how a script's device mesh calls the dimensions.

    On the control thread.
    """

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._meshes = DeviceMeshes()
        self._known: object = ([], None)

    def pulse(self) -> None:
        """Look whether there are others than before."""
        known = (which_groups(), self._meshes.look())
        if known == self._known:
            return
        self._known = known
        world = read_world((), numbers=False)
        self._services.report(GroupsMade(sorted({group.name for group in world.groups} if world is not None else ())))
        if world is None:
            return
        for actor in self._services.actors():
            if actor.call is not None and actor.script is not None and world.rank == actor.call.rank:
                self._name_dimensions(actor.call)

    def _name_dimensions(self, call: EndpointCall) -> None:
        shape = Shape.from_wire(call.view)
        mesh = self._meshes.found
        found = mesh.sizes if mesh is not None and shape.labels == DEFAULT else {}
        if math.prod(found.values()) == len(shape) and found:
            call.view = Shape.from_extent(found).to_wire()
            self._services.report(DimensionsNamed(list(found.items())))

"""The meshes of one test in a program that goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from meshrt.mesh.owner import owner_for_new
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.mesh.root import Root

__all__ = ["MeshesOfTest"]

P = ParamSpec("P")

#: Seconds for meshes that a test has left.
_GRACE = 1.0


class MeshesOfTest:
    """The meshes of one test."""

    def __init__(self, root: Root) -> None:
        self._before = set(_running(root))
        self._made: list[ProcMesh] = []

    def noting(self, make: Callable[P, ProcMesh]) -> Callable[P, ProcMesh]:
        """Return ``make``, whose meshes are noted."""

        def noted(*args: P.args, **settings: P.kwargs) -> ProcMesh:
            mesh = make(*args, **settings)
            self._made.append(mesh)
            return mesh

        return noted

    def finish(self, root: Root) -> list[str]:
        """Stop all meshes that are new; returns what the test has left, in words."""
        for mesh in self._made:
            mesh.stop()
        own = {mesh.mesh_id for mesh in self._made}
        left = {mesh_id: name for mesh_id, name in _running(root).items() if mesh_id not in self._before | own}
        for mesh_id in left:
            owner_for_new().stop(mesh_id, _GRACE, "").get()
        root.ending.settle()
        unread, report = root.script.take_unread()
        problems = [f"an error that nobody has read: {line}" for line in unread]
        problems += [report] if report else []
        names = [name for name in left.values() if name]
        return [*problems, f"meshes that the test has left running: {', '.join(names)}"] if names else problems


def _running(root: Root) -> dict[str, str]:
    """Return the names of the script's meshes that run, by id; "" of a singleton, which is to live on."""
    return {
        mesh_id: "" if record.singleton else record.name
        for mesh_id, record in tuple(root.registry.meshes.items())
        if record.owner is None and record.alive()
    }

"""``meshrt.logs``: change what the terminal shows of the output of ranks, while the program runs."""

from __future__ import annotations

from meshrt.actor.actor import Actor
from meshrt.errors import UsageError
from meshrt.mesh.actor_mesh import ActorMesh
from meshrt.mesh.owner import owner_for_new, owner_for_old
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.mesh.shown import parse_shown

__all__ = ["logs"]


def logs(shown: str | None, mesh: ProcMesh | ActorMesh[Actor] | None = None) -> None:
    """Change what the terminal shows of the output of ranks. The log files have all of it in any case.

    ``"on"``: all, equal lines of ranks once; ``"off"``: nothing. Or options: ``"ranks(0)"``, a selection;
    ``"fold=0.5"``, the seconds that a line waits for equal ones of other ranks (``fold=off``: none); ``"limit=100"``,
    lines a second. An option that is left out is as in ``"on"``.

    Args:
        shown: The setting. None: what holds otherwise: for a mesh the setting of the program, for the program
            ``MESHRT_LOGS``.
        mesh: The mesh that it is for: all of its ranks, or an actor on them. None: all meshes without a setting of
            their own.
    Raises:
        UsageError: The setting is invalid; this is a rank; the mesh is a slice, or was made by another process.
        SelectionError: The mesh has no such ranks.
    """
    setting = None if shown is None else parse_shown(shown, "logs: ")
    if mesh is None:
        owner_for_new().show(setting, "")
        return
    if not isinstance(mesh, ProcMesh | ActorMesh):
        raise UsageError(f"logs: mesh= is a mesh of processes, or of actors, not {type(mesh).__name__}")
    mesh_id = mesh._target.mesh_id if isinstance(mesh, ActorMesh) else mesh.mesh_id
    owner = owner_for_old(mesh_id, mesh.name)
    owner.show(setting, mesh_id, mesh._shape)

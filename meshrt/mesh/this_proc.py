"""``this_proc()``: the running process as a mesh of one. Actors spawned on it live here, on threads of their own."""

from __future__ import annotations

import functools
import secrets
import threading

from meshrt.actor.actors import ActorHost
from meshrt.actor.context import current_call
from meshrt.actor.control import ControlThread
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.mesh.program import start_root
from meshrt.mesh.registry import OwnMesh
from meshrt.mesh.root import Root
from meshrt.selection import Shape, Slice
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.wire.addresses import MeshAddress, socket_path

__all__ = ["this_proc"]

_making = threading.Lock()


def this_proc() -> ProcMesh:
    """Return the process that calls, as a mesh without dimensions.

    In a rank: that rank. In the script: the script's own process; its actors end with the program, and other ranks
    may call them.
    """
    call = current_call()
    if call is not None:
        rank = Shape((), Slice(offset=call.base_rank, sizes=(), strides=()))
        return ProcMesh(call.instance.mesh_id, "this_proc", rank, current_runtime().own_address, None)
    if has_runtime() and not current_runtime().is_root:
        runtime = current_runtime()
        rank = Shape((), Slice(offset=runtime.rank, sizes=(), strides=()))
        return ProcMesh(runtime.mesh_id, "this_proc", rank, runtime.own_address, None)
    return _of_root(start_root())


def _of_root(root: Root) -> ProcMesh:
    with _making:
        mesh: ProcMesh | None = root.runtime.own_mesh
        if mesh is not None:
            return mesh
        root.loop.begin()
        mesh_id = secrets.token_hex(4)
        host = ActorHost(mesh_id, 0, root.services.on_own_actor, None)
        control = ControlThread(
            listening_socket(socket_path(root.run.directory, mesh_id, 0)),
            None,
            root.runtime.secret,
            f"{mesh_id}/0/",
            host.deliver,
            lambda drain, _why: host.stop(drain),
            {},
        )
        control.identity = root.runtime.store.identity
        host.attach(control)
        host.before_raised.append(root.script.load_failures)
        control.start(None, root.runtime.driver)
        root.upkeep.at_look(control.listen_again)
        root.ending.at_end(functools.partial(host.interrupt, cleanup=True))
        root.ending.at_end(control.close)
        root.ending.at_end(lambda: host.close(2.0))
        root.registry.own[mesh_id] = OwnMesh(lambda: root.run.address, control.admit)
        mesh = root.runtime.own_mesh = ProcMesh(
            mesh_id, "this_proc", Shape.unity(), MeshAddress((root.run.address,), 1), None
        )
        return mesh

"""meshrt: a Python program on many processes, and a debugger for all of them at once.

    from meshrt import Actor, endpoint, proc_mesh

Names are loaded when they are first used: importing meshrt costs next to nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if not sys.platform.startswith("linux"):
    raise ImportError(f"meshrt runs on Linux only (it needs pidfd, memfd and prctl); this is {sys.platform}")


def _make_absolute(*variables: str) -> None:
    """Have paths in the environment mean the same when this program, or a child, has another working directory."""
    for variable in variables:
        value = os.environ.get(variable)
        if value and not os.path.isabs(value):
            with contextlib.suppress(OSError):  # there is no working directory any more
                os.environ[variable] = os.path.abspath(value)


_make_absolute("MESHRT_RUNTIME_DIR", "MESHRT_RUNS")

if TYPE_CHECKING:
    from meshrt.actor.breakpoints import breakpoint
    from meshrt.actor.context import Context, context, current_actor_name, current_rank, current_size
    from meshrt.debug.prompt.scripted import debug_client
    from meshrt.engine.command import CommandEngine, ssh
    from meshrt.engine.local import LocalEngine
    from meshrt.engine.ray_engine import RayEngine
    from meshrt.engine.start import proc_mesh
    from meshrt.errors import (
        ActorAborted,
        ActorError,
        ArgumentNotSerializable,
        AuthenticationError,
        CallCancelled,
        CallTimeout,
        Disconnected,
        ForkedMeshError,
        HostLost,
        InvalidEndpoint,
        LimitReached,
        LinkLost,
        MeshBusy,
        MeshError,
        MeshFailure,
        MeshStopped,
        NotAnEndpointError,
        PortClosed,
        ProcessDied,
        ProtocolError,
        ReferenceLost,
        ResultNotSerializable,
        SelectionError,
        ShutdownError,
        SpawnError,
        StoreFull,
        StoreTimeout,
        SupervisionError,
        UsageError,
    )
    from meshrt.failure.telling import record
    from meshrt.inspect.connect import RunningProgram, connect
    from meshrt.memory.api import memory
    from meshrt.mesh.actor_mesh import Endpoint
    from meshrt.mesh.channels import Channel, PortReceiver
    from meshrt.mesh.future import Future
    from meshrt.mesh.nursery import Nursery, nursery
    from meshrt.mesh.own_ranks import this_proc
    from meshrt.mesh.ports import Port
    from meshrt.mesh.proc_mesh import HostMesh, ProcMesh, host_mesh, logs, this_host
    from meshrt.mesh.program import shutdown_context
    from meshrt.mesh.restarts import Restart
    from meshrt.mesh.several import Accumulator, as_completed, gather, wait
    from meshrt.mesh.singleton import get_or_spawn, get_singleton
    from meshrt.mesh.typed import Actor, ActorMesh, concurrent_endpoint, endpoint
    from meshrt.mesh.value_mesh import ValueMesh
    from meshrt.selection import Extent, MeshTrait, Point, Shape, Slice
    from meshrt.spmd.join import join
    from meshrt.store.put import put
    from meshrt.store.refs import ObjectRef

_HOME = {
    "Accumulator": "meshrt.mesh.several",
    "Actor": "meshrt.actor.actor",
    "ActorMesh": "meshrt.mesh.actor_mesh",
    "Channel": "meshrt.mesh.channels",
    "CommandEngine": "meshrt.engine.command",
    "Context": "meshrt.actor.context",
    "Endpoint": "meshrt.mesh.actor_mesh",
    "Extent": "meshrt.selection",
    "Future": "meshrt.mesh.future",
    "HostMesh": "meshrt.mesh.proc_mesh",
    "LocalEngine": "meshrt.engine.local",
    "MeshTrait": "meshrt.selection",
    "Nursery": "meshrt.mesh.nursery",
    "ObjectRef": "meshrt.store.refs",
    "Point": "meshrt.selection",
    "Port": "meshrt.mesh.ports",
    "PortReceiver": "meshrt.mesh.channels",
    "ProcMesh": "meshrt.mesh.proc_mesh",
    "RayEngine": "meshrt.engine.ray_engine",
    "Shape": "meshrt.selection",
    "Slice": "meshrt.selection",
    "ValueMesh": "meshrt.mesh.value_mesh",
    "as_completed": "meshrt.mesh.several",
    "RunningProgram": "meshrt.inspect.connect",
    "connect": "meshrt.inspect.connect",
    "breakpoint": "meshrt.actor.breakpoints",
    "concurrent_endpoint": "meshrt.actor.endpoint",
    "context": "meshrt.actor.context",
    "current_actor_name": "meshrt.actor.context",
    "current_rank": "meshrt.actor.context",
    "current_size": "meshrt.actor.context",
    "debug_client": "meshrt.debug.prompt.scripted",
    "endpoint": "meshrt.actor.endpoint",
    "gather": "meshrt.mesh.several",
    "get_or_spawn": "meshrt.mesh.singleton",
    "get_singleton": "meshrt.mesh.singleton",
    "host_mesh": "meshrt.mesh.proc_mesh",
    "join": "meshrt.spmd.join",
    "logs": "meshrt.mesh.proc_mesh",
    "memory": "meshrt.memory",
    "nursery": "meshrt.mesh.nursery",
    "proc_mesh": "meshrt.engine.start",
    "put": "meshrt.store.put",
    "Restart": "meshrt.mesh.restarts",
    "record": "meshrt.failure.telling",
    "shutdown_context": "meshrt.mesh.program",
    "ssh": "meshrt.engine.command",
    "this_host": "meshrt.mesh.proc_mesh",
    "this_proc": "meshrt.mesh.own_ranks",
    "wait": "meshrt.mesh.several",
}
_ERRORS = "meshrt.errors"

__all__ = [
    "Accumulator",
    "Actor",
    "ActorAborted",
    "ActorError",
    "ActorMesh",
    "ArgumentNotSerializable",
    "AuthenticationError",
    "CallCancelled",
    "CallTimeout",
    "Channel",
    "CommandEngine",
    "Context",
    "Disconnected",
    "Endpoint",
    "Extent",
    "ForkedMeshError",
    "Future",
    "HostLost",
    "HostMesh",
    "InvalidEndpoint",
    "LimitReached",
    "LinkLost",
    "LocalEngine",
    "MeshBusy",
    "MeshError",
    "MeshFailure",
    "MeshStopped",
    "MeshTrait",
    "NotAnEndpointError",
    "Nursery",
    "ObjectRef",
    "Point",
    "Port",
    "PortClosed",
    "PortReceiver",
    "ProcMesh",
    "ProcessDied",
    "ProtocolError",
    "RayEngine",
    "ReferenceLost",
    "Restart",
    "ResultNotSerializable",
    "RunningProgram",
    "SelectionError",
    "Shape",
    "ShutdownError",
    "Slice",
    "SpawnError",
    "StoreFull",
    "StoreTimeout",
    "SupervisionError",
    "UsageError",
    "ValueMesh",
    "as_completed",
    "breakpoint",
    "concurrent_endpoint",
    "connect",
    "context",
    "current_actor_name",
    "current_rank",
    "current_size",
    "debug_client",
    "endpoint",
    "gather",
    "get_or_spawn",
    "get_singleton",
    "host_mesh",
    "join",
    "logs",
    "memory",
    "nursery",
    "proc_mesh",
    "put",
    "record",
    "shutdown_context",
    "ssh",
    "this_host",
    "this_proc",
    "wait",
]

__version__ = "0.1.0"

#: The script's hook for a failure that no owner below has handled: called with a `MeshFailure` as soon as it is known,
#: on a thread of its own. If it returns, the failure is handled. None: the next wait of the script raises its error.
unhandled_fault_hook: Callable[[MeshFailure], object] | None = None


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'meshrt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME.get(name, _ERRORS)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])

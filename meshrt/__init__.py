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


def _tell_of_free_threading(abiflags: str) -> None:
    """Warn on a Python without the GIL, once for a program: the variable is in the environment of agents and ranks."""
    if "t" in abiflags and not os.environ.get("MESHRT_FREE_THREADED"):
        from warnings import warn  # start-up: seldom

        os.environ["MESHRT_FREE_THREADED"] = "told"
        text = "meshrt is not tested on free-threaded builds of Python, and this is one: use a build with the GIL"
        warn(f"{text} (MESHRT_FREE_THREADED=1 switches this warning off)", RuntimeWarning, stacklevel=3)


_tell_of_free_threading(sys.abiflags)


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

#: Which names are in which module.
_HOME = {
    name: module
    for module, names in {
        "meshrt.actor.actor": "Actor",
        "meshrt.actor.breakpoints": "breakpoint",
        "meshrt.actor.context": "Context context current_actor_name current_rank current_size",
        "meshrt.actor.endpoint": "concurrent_endpoint endpoint",
        "meshrt.debug.prompt.scripted": "debug_client",
        "meshrt.engine.command": "CommandEngine ssh",
        "meshrt.engine.local": "LocalEngine",
        "meshrt.engine.ray_engine": "RayEngine",
        "meshrt.engine.start": "proc_mesh",
        "meshrt.failure.telling": "record",
        "meshrt.inspect.connect": "RunningProgram connect",
        "meshrt.memory": "memory",
        "meshrt.mesh.actor_mesh": "ActorMesh Endpoint",
        "meshrt.mesh.channels": "Channel PortReceiver",
        "meshrt.mesh.future": "Future",
        "meshrt.mesh.nursery": "Nursery nursery",
        "meshrt.mesh.own_ranks": "this_proc",
        "meshrt.mesh.ports": "Port",
        "meshrt.mesh.proc_mesh": "HostMesh ProcMesh host_mesh logs this_host",
        "meshrt.mesh.program": "shutdown_context",
        "meshrt.mesh.restarts": "Restart",
        "meshrt.mesh.several": "Accumulator as_completed gather wait",
        "meshrt.mesh.singleton": "get_or_spawn get_singleton",
        "meshrt.mesh.value_mesh": "ValueMesh",
        "meshrt.selection": "Extent MeshTrait Point Shape Slice",
        "meshrt.spmd.join": "join",
        "meshrt.store.put": "put",
        "meshrt.store.refs": "ObjectRef",
    }.items()
    for name in names.split()
}

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
    value = getattr(importlib.import_module(_HOME.get(name, "meshrt.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])

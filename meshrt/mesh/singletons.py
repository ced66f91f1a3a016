"""Which process each singleton of the program has: an actor with a name of its own, which anybody may ask for.

A name: ``free -> has a process -> free`` when that has ended, or is being stopped. The next that asks starts another.

What runs there is decided by that process alone (`meshrt.actor.execute.Executor.decode_init`): everybody who asks sends
it what the singleton is to be built from. The first message builds it, the others find it; one that has failed, or was
stopped, is built again by the next. So no process that asks has to live until the singleton is there.

It is a process of its own on the script's host, which no rank owns: it ends with the program.
"""

from __future__ import annotations

import threading

from msgspec.structs import replace

from meshrt.errors import UsageError
from meshrt.mesh.hosts import on_this_machine
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.registry import Registry
from meshrt.mesh.spawning import Spawning
from meshrt.mesh.spec import MeshSpec
from meshrt.mesh.stopping import Stopping

__all__ = ["Singletons"]


class Singletons:
    """The singletons of one root. Any thread but the loop's, which placing agents would block.

    Args:
        registry, spawning, stopping: Those of the root.
    """

    def __init__(self, registry: Registry, spawning: Spawning, stopping: Stopping) -> None:
        self._registry = registry
        self._spawning = spawning
        self._stopping = stopping
        self._lock = threading.Lock()
        self._meshes: dict[str, str] = {}

    def find(self, name: str, *, create: bool) -> MeshRecord:
        """Return the process of a singleton.

        Args:
            create: Start one if there is none.
        Raises:
            UsageError: There is none, or the name is invalid.
            SpawnError: It cannot be started.
        """
        with self._lock:
            record = self._registry.meshes.get(self._meshes.get(name, ""))
            if record is not None and record.stopped is None and not record.fates:
                return record
            if not create:
                if record is not None and record.fates:
                    raise UsageError(f"singleton {name!r} {record.fates[0]}; get_or_spawn() starts another one")
                raise UsageError(f"this program has no singleton {name!r}: {self._others()}")
            if record is not None and record.stopped is None:
                self._stopping.stop(record.mesh_id, 0.0)  # its process has ended: tools show it no more
            spec = replace(MeshSpec.make(name, {}, None, None, ()), singleton=True)
            mesh_id = self._spawning.spawn(spec, on_this_machine())
            self._meshes[name] = mesh_id
            return self._registry.meshes[mesh_id]

    def _others(self) -> str:
        names = [name for name, mesh_id in self._meshes.items() if not self._registry.is_stopped(mesh_id)]
        return f"it has {', '.join(names)}" if names else "get_or_spawn() makes one"

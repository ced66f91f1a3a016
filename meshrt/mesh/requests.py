"""What ranks may ask the root for: to be told of births and deaths, and to start and stop meshes of their own.

Each answer may come later; until then the rank waits, so any error is an answer too. On the root's loop.
"""

from __future__ import annotations

import logging
import threading

from meshrt.errors import MeshError
from meshrt.hooks.facts import Body
from meshrt.mesh.alarm import Alarm
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.record import Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.services import Services
from meshrt.mesh.spawning import Spawning
from meshrt.mesh.spec import MeshSpec
from meshrt.mesh.stopping import Stopping
from meshrt.wire.control import Address
from meshrt.wire.fate import Fate
from meshrt.wire.peer import Reply

__all__ = ["RankRequests"]

_log = logging.getLogger("meshrt")


class RankRequests:
    """The requests of ranks.

    Args:
        services: Passes them on.
        loop, registry, restarts, alarm, lifecycle, spawning, stopping: Serve them.
    """

    def __init__(
        self,
        services: Services,
        loop: RootLoop,
        registry: Registry,
        restarts: Restarts,
        alarm: Alarm,
        lifecycle: Lifecycle,
        spawning: Spawning,
        stopping: Stopping,
    ) -> None:
        self._loop = loop
        self._registry = registry
        self._restarts = restarts
        self._alarm = alarm
        self._lifecycle = lifecycle
        self._spawning = spawning
        self._stopping = stopping
        services.deferred_operations.update(
            {
                "mesh.watch": self._watch,
                "mesh.told": self._told,
                "mesh.restarts": self._allow_restarts,
                "mesh.restarted": self._restarted,
                "mesh.born": self._born,
                "mesh.spawn": self._spawn,
                "mesh.stop": self._stop,
                "mesh.initialized": self._initialized,
            }
        )

    def _watch(self, _address: Address, body: Body, answer: Reply) -> None:
        self._registry.watch(body["mesh"], body["rank"], lambda fate: answer(fate.to_wire(), ""))

    def _told(self, _address: Address, body: Body, answer: Reply) -> None:
        self._alarm.told((body["mesh"], body["rank"], body["pid"]))
        answer({}, "")

    def _allow_restarts(self, address: Address, body: Body, answer: Reply) -> None:
        self._restarts.allow(body["mesh"], body["ranks"], body["actor"], body["count"], address)
        answer({}, "")

    def _restarted(self, _address: Address, body: Body, answer: Reply) -> None:
        def restarted(incarnation: int, fate: Fate) -> None:
            answer({"incarnation": incarnation, "fate": fate.to_wire()}, "")

        self._registry.when_restarted(body["mesh"], body["rank"], body["actor"], restarted)

    def _born(self, _address: Address, body: Body, answer: Reply) -> None:
        self._registry.when_born(body["mesh"], body["rank"], lambda: answer({}, ""))

    def _spawn(self, address: Address, body: Body, answer: Reply) -> None:
        owner = Owner(*address, body["actor"])

        def work() -> None:
            # Placing agents may take a moment: not on the loop.
            try:
                mesh_id = self._spawning.spawn(MeshSpec.from_wire(body), owner=owner)
            except Exception as error:
                # The rank waits: any error is its answer.
                if not isinstance(error, MeshError):
                    _log.exception("a mesh for a rank")
                answer.fail(error)
                return
            # On the loop, where ranks end: the one that asks may have ended meanwhile.
            self._loop.post(lambda: made(mesh_id))

        def made(mesh_id: str) -> None:
            self._lifecycle.own(owner, mesh_id)
            answer({"mesh_id": mesh_id, "name": self._registry.meshes[mesh_id].name}, "")

        threading.Thread(target=work, name="meshrt-spawn", daemon=True).start()

    def _initialized(self, _address: Address, body: Body, answer: Reply) -> None:
        initialized = self._registry.meshes[body["mesh"]].initialized
        initialized.when_done(lambda: answer({"why": str(initialized.exception() or "")}, ""), background=False)

    def _stop(self, _address: Address, body: Body, answer: Reply) -> None:
        if body["mesh"] not in self._registry.meshes:
            answer({}, "")
            return
        stopped = self._stopping.stop(body["mesh"], body["grace"], body["why"])
        stopped.when_done(lambda: answer({}, ""), background=False)

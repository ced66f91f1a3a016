"""The start of a mesh: its checks, the agents that have its ranks, and the messages to them."""

from __future__ import annotations

import functools
import secrets
import sys
import threading

from meshrt.errors import ShutdownError, SpawnError, UsageError
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.births import Births
from meshrt.mesh.ending import Ending
from meshrt.mesh.engine import Engine, Request
from meshrt.mesh.host_agents import HostAgents
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.progress import Progress
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.mesh.spec import MeshSpec, check_limits
from meshrt.mesh.stopping import Stopping
from meshrt.mesh.terminal import Terminal
from meshrt.mesh.upkeep import Upkeep
from meshrt.transport.driver import Driver

__all__ = ["Spawning"]


class Spawning:
    """Starts meshes. Any thread but the loop's, which placing agents would block.

    Args:
        births: Makes the messages to the agents.
        the others: Those of the root.
    """

    def __init__(
        self,
        loop: RootLoop,
        agents: HostAgents,
        births: Births,
        registry: Registry,
        driver: Driver,
        services: Services,
        lifecycle: Lifecycle,
        stopping: Stopping,
        ending: Ending,
        upkeep: Upkeep,
        terminal: Terminal,
    ) -> None:
        self._loop = loop
        self._agents = agents
        self._births = births
        self._registry = registry
        self._driver = driver
        self._services = services
        self._lifecycle = lifecycle
        self._stopping = stopping
        self._ending = ending
        self._upkeep = upkeep
        self._terminal = terminal
        self._lock = threading.RLock()
        self._names = 0

    def spawn(self, spec: MeshSpec, engine: Engine | None = None, owner: Owner | None = None) -> str:
        """Start the ranks of a mesh; returns its id at once. ``owner``: the rank that has asked for it.

        Raises:
            SpawnError: The machine cannot hold them.
            UsageError: The message for the birth of a rank is too long; ``hosts`` cannot be divided among the agents.
        """
        self._check_open()
        self._upkeep.mend()  # the ranks listen there
        count = spec.extent.nelements
        check_limits(count, sum(len(record.alive()) for record in self._registry.running()))
        self._services.load_asked_for()
        sizes = dict(zip(spec.extent.labels, spec.extent.sizes, strict=True))
        agents = self._agents.of(engine, Request(sizes.get("hosts"), count, sizes.get("gpus")))
        self._loop.begin()  # it ends the agents, also if no mesh is made
        _check_division(sizes.get("hosts"), len(agents))
        with self._lock:
            self._names += 1
            name = spec.name or f"mesh{self._names}"
        births = functools.partial(self._births.frames, spec)
        progress = Progress(count, self._terminal)
        record = MeshRecord(secrets.token_hex(4), name, spec, agents, self._driver, owner, births, progress)
        frames: dict[AgentLink, list[bytes]] = {}
        for agent in record.agents:
            frames[agent] = record.births([rank for rank in range(count) if record.agent_of[rank] is agent])
        # Known from here on: all checks have passed.
        self._registry.add(record)
        if self._loop.failure:  # it has failed since the check: this mesh was not known then
            self._stopping.fail(record)
            return record.mesh_id
        for agent, asked in frames.items():
            agent.send_frames(asked)
            if agent.gone:  # since it was chosen: its end has been handled before this mesh was known
                self._loop.post(functools.partial(self._lifecycle.lose, agent))
        return record.mesh_id

    def _check_open(self) -> None:
        if self._ending.closed or sys.is_finalizing():
            raise ShutdownError("the program is ending: no new mesh can be started")
        if self._loop.failure:
            raise SpawnError(self._loop.failure)


def _check_division(hosts: int | None, agents: int) -> None:
    """Raise UsageError if some hosts of the mesh would be divided among two agents."""
    if hosts is not None and hosts % agents:
        refused = f"hosts={hosts} cannot be divided among the {agents} hosts of the engine"
        raise UsageError(f"{refused}; expected a multiple of {agents}")

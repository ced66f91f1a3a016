"""The start of a mesh: its checks, the agents that have its ranks, and the messages to them."""

from __future__ import annotations

import functools
import secrets
import sys
import threading
from collections.abc import Sequence

from meshrt.errors import ShutdownError, SpawnError, UsageError
from meshrt.host.limits import check_limits
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.births import Births
from meshrt.mesh.default_engine import default_engine
from meshrt.mesh.ending import Ending
from meshrt.mesh.engine import Request
from meshrt.mesh.host_agents import HostAgents
from meshrt.mesh.hosts import Hosts
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.progress import Progress
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.mesh.spec import MeshSpec
from meshrt.mesh.stopping import Stopping
from meshrt.mesh.terminal import Terminal
from meshrt.mesh.upkeep import Upkeep
from meshrt.selection import counted
from meshrt.transport.driver import Driver

__all__ = ["Spawning"]

#: So many hosts are named in an error.
_NAMED = 8
#: Seconds that an agent, for which much waits, has to answer before nothing more is sent to it.
_PATIENCE = 5.0


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

    def spawn(self, spec: MeshSpec, hosts: Hosts, owner: Owner | None = None) -> str:
        """Start the ranks of a mesh; returns its id at once. ``owner``: the rank that has asked for it.

        Raises:
            SpawnError: The machine cannot hold them; a host is lost.
            UsageError: The message for the birth of a rank is too long; ``hosts`` or the ranks cannot be divided
                evenly among the agents.
        """
        self._check_open()
        self._upkeep.mend()  # the ranks listen there
        count = spec.extent.nelements
        self._services.load_asked_for()
        agents = self._place(spec, hosts, owner)
        for agent in agents:
            if agent.full and not agent.hear(_PATIENCE):
                raise SpawnError(f"host {agent.host} cannot start more ranks: its agent does not answer")
        # Agents on other machines look at theirs, when they are asked for ranks.
        here = count * sum(not agent.machine for agent in agents) // len(agents)
        check_limits(here, self._running_here())
        with self._lock:
            self._names += 1
            name = spec.name or f"mesh{self._names}"
        births = functools.partial(self._births.frames, spec)
        # Of ranks that join, the terminal is their own.
        progress = Progress(0 if spec.meeting else count, self._terminal)
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

    def _place(self, spec: MeshSpec, hosts: Hosts, owner: Owner | None) -> list[AgentLink]:
        """Return the agents for a mesh, in the order of its ranks."""
        sizes = dict(zip(spec.extent.labels, spec.extent.sizes, strict=True))
        count = sizes.get("hosts")
        if hosts.mesh_id:
            return self._beside(hosts.mesh_id, hosts.members)
        if owner is not None and owner.mesh_id in self._registry.meshes:
            beside = self._registry.meshes[owner.mesh_id].agents[:count]
            if count in (None, 1):  # where the rank is that makes it
                return self._beside(owner.mesh_id, [owner.rank])
            _check_division(count, spec.extent.nelements, beside)
            return _living(beside)
        engine = hosts.engine if hosts.engine is not None else default_engine()
        count = hosts.size or count
        agents = self._agents.of(engine, Request(count, spec.extent.nelements, sizes.get("gpus")))
        self._loop.begin()  # it ends the agents, also if no mesh is made
        _check_division(count, spec.extent.nelements, agents)
        if hosts.size:
            agents = [agents[member * len(agents) // hosts.size] for member in hosts.members]
        return agents

    def _running_here(self) -> int:
        """Return how many ranks run on this machine."""
        running = self._registry.running()
        return sum(not record.agent_of[rank].machine for record in running for rank in record.alive())

    def _beside(self, mesh_id: str, ranks: Sequence[int]) -> list[AgentLink]:
        """Return the agents of some ranks, one for each. Raises SpawnError."""
        record = self._registry.meshes.get(mesh_id)
        if record is None:
            raise SpawnError("the mesh of these hosts has ended long ago; make a new one with proc_mesh()")
        return _living([record.agent_of[rank] for rank in ranks])

    def _check_open(self) -> None:
        if self._ending.closed or sys.is_finalizing():
            raise ShutdownError("the program is ending: no new mesh can be started")
        if self._loop.failure:
            raise SpawnError(self._loop.failure)


def _living(agents: list[AgentLink]) -> list[AgentLink]:
    lost = sorted({agent.host for agent in agents if agent.gone})
    if lost:
        raise SpawnError(f"host {lost[0]} is lost; no ranks can be started there")
    return agents


def _check_division(hosts: int | None, ranks: int, agents: Sequence[AgentLink]) -> None:
    """Check that the hosts of a mesh, or its ranks where it names no hosts, are divided evenly among agents.

    Agents of this machine alone may stand for several hosts each, and have different numbers of ranks.

    Raises:
        UsageError: They are not.
    """
    count = len(agents)
    elsewhere = any(agent.machine for agent in agents)
    has = f"the engine has {counted(count, 'host')} ({_names(agents)})"
    if elsewhere and hosts is not None and hosts > count:
        raise UsageError(
            f"hosts={hosts}, but {has}; expected hosts={count} or fewer: for more processes on each host, add a "
            "dimension such as gpus=2"
        )
    if elsewhere and hosts is None and ranks % count:
        more = ranks + count - ranks % count
        raise UsageError(
            f"{counted(ranks)} cannot be divided evenly, as {has}; expected a multiple of {count}, such as {more}, or "
            "hosts=1 together with the other sizes, to use one host only"
        )
    if hosts is not None and hosts % count:
        refused = f"hosts={hosts} cannot be divided among the {count} hosts of the engine"
        raise UsageError(f"{refused}; expected a multiple of {count}")


def _names(agents: Sequence[AgentLink]) -> str:
    shown = ", ".join(agent.host for agent in agents[:_NAMED])
    return f"{shown}, ..." if len(agents) > _NAMED else shown

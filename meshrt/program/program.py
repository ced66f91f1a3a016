"""What the root knows of its program's ranks: one object for each root, shared by its plug-ins.

The state of ranks comes from their host agents, which are asked whether they answer when the user looks. If an agent
does not answer, the last known state is still there, and a rank that ran then seems to run. It is not known whether it
does; most often it does.
"""

from __future__ import annotations

import time

from meshrt.hooks.services import RootServices
from meshrt.program.groups import by_mesh
from meshrt.program.sources import Sources
from meshrt.program.targets import Targets

__all__ = ["Program", "program_of"]

#: Its key in `RootServices.tables`.
_TABLE = "program"
#: Seconds that an agent has to answer: it reads what the kernel knows of one rank.
_SECONDS = 0.5
#: Seconds for which an agent that did not answer counts as silent and is not asked again.
_KNOWN = 1.0


class Program:
    """The states of a program's ranks, and their sources. On the root's loop.

    Attributes:
        sources: What plug-ins know; each registers its own.
        targets: Which ranks a user means, and their states.
    """

    def __init__(self, services: RootServices) -> None:
        self.sources = Sources()
        self.targets = Targets(services, self.sources)
        self._hosts = _Hosts(services)

    async def looked(self) -> Targets:
        """Return the targets after asking the agents of the hosts whether they answer."""
        return self.targets.without(await self._hosts.silent())


def program_of(services: RootServices) -> Program:
    """Return what the root knows of its ranks; the first call creates it."""
    found: Program | None = services.tables.get(_TABLE)
    if found is None:
        found = services.tables[_TABLE] = Program(services)
    return found


class _Hosts:
    """The agents of the hosts. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        #: Since when agents are known not to answer (epoch seconds), by host.
        self._silent: dict[str, float] = {}
        self._looked = 0.0

    async def silent(self) -> dict[str, float]:
        """Return the hosts whose agents do not answer, and since when that is known (epoch seconds)."""
        if not self._silent or time.monotonic() - self._looked > _KNOWN:
            measured = await self._services.measure(self._one_of_each(), _SECONDS, work=True)
            now = time.time_ns() / 1e9
            self._silent = {host: self._silent.get(host, now) for host in measured.silent}
            self._looked = time.monotonic()
        return dict(self._silent)

    def _one_of_each(self) -> dict[str, list[int]]:
        """Return a rank of each host, by mesh id: an agent is asked about its ranks."""
        found: dict[str, tuple[str, int]] = {}
        for mesh in self._services.meshes():
            for rank in mesh.alive:
                found.setdefault(mesh.hosts[rank], (mesh.mesh_id, rank))
        return by_mesh(found.values())

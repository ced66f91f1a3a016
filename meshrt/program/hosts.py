"""Which host agents do not answer, asked when a person looks. On the root's loop.

What ranks do comes from their host agents: of one that does not answer itself, all that was known last is still there,
and a rank that ran then seems to run. Whether it does, nobody knows; most often it does.
"""

from __future__ import annotations

import time

from meshrt.hooks.services import RootServices
from meshrt.program.groups import by_mesh

__all__ = ["Hosts"]

#: Seconds for an agent to answer: it reads what the kernel knows of one rank.
_SECONDS = 0.5
#: ... and for which one that has not is taken for silent, without being waited for again.
_KNOWN = 1.0


class Hosts:
    """The agents of the hosts."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        #: Since when they are known not to answer (epoch seconds), by host.
        self._silent: dict[str, float] = {}
        self._looked = 0.0

    async def silent(self) -> dict[str, float]:
        """Return the hosts whose agent does not answer, and since when that is known (epoch seconds)."""
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

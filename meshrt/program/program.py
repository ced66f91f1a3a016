"""What the root knows of its program's ranks: one object for each root, which every plug-in of it shares."""

from __future__ import annotations

from meshrt.hooks.services import RootServices
from meshrt.program.hosts import Hosts
from meshrt.program.sources import Sources
from meshrt.program.targets import Targets

__all__ = ["Program", "program_of"]

#: Where `RootServices.tables` has it.
_TABLE = "program"


class Program:
    """On the root's loop.

    Attributes:
        sources: What plug-ins know; each registers its own.
        targets: Which ranks a person means, and their states.
    """

    def __init__(self, services: RootServices) -> None:
        self.sources = Sources()
        self.targets = Targets(services, self.sources)
        self._hosts = Hosts(services)

    async def looked(self) -> Targets:
        """Return the targets as they are now, after the agents of the hosts were asked whether they answer."""
        return self.targets.without(await self._hosts.silent())


def program_of(services: RootServices) -> Program:
    """Return what the root knows of its ranks; the first one that asks makes it."""
    found: Program | None = services.tables.get(_TABLE)
    if found is None:
        found = services.tables[_TABLE] = Program(services)
    return found

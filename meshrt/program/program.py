"""What the root knows of its program's ranks: one object for each root, shared by its plug-ins."""

from __future__ import annotations

from meshrt.hooks.services import RootServices
from meshrt.program.hosts import Hosts
from meshrt.program.sources import Sources
from meshrt.program.targets import Targets

__all__ = ["Program", "program_of"]

#: Its key in `RootServices.tables`.
_TABLE = "program"


class Program:
    """The states of a program's ranks, and their sources. On the root's loop.

    Attributes:
        sources: What plug-ins know; each registers its own.
        targets: Which ranks a user means, and their states.
    """

    def __init__(self, services: RootServices) -> None:
        self.sources = Sources()
        self.targets = Targets(services, self.sources)
        self._hosts = Hosts(services)

    async def looked(self) -> Targets:
        """Return the targets after asking the agents of the hosts whether they answer."""
        return self.targets.without(await self._hosts.silent())


def program_of(services: RootServices) -> Program:
    """Return what the root knows of its ranks; the first call creates it."""
    found: Program | None = services.tables.get(_TABLE)
    if found is None:
        found = services.tables[_TABLE] = Program(services)
    return found

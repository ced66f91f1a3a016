"""Root side: which ranks a person means by ``top``, and what they do; `meshrt.top` does the rest."""

from __future__ import annotations

from meshrt.debug.broker.doing import chosen
from meshrt.debug.broker.targets import Targets
from meshrt.hooks.facts import Body
from meshrt.hooks.plugins import plugins
from meshrt.hooks.services import RootServices, ToolClient

__all__ = ["Top"]


class Top:
    """The operation ``debug.top``. On the root's loop."""

    def __init__(self, services: RootServices, targets: Targets) -> None:
        self._services = services
        self._targets = targets

    async def top(self, client: ToolClient, body: Body) -> Body:
        """Return a look at the ranks of ``{actor, ranks}``, both optional.

        Raises:
            UsageError: There is no such actor.
            SelectionError: No such ranks.
        """
        plugins.load("top", self._services, in_root=True)
        answer: Body = await self._services.tables["top.looks"].look(chosen(self._targets, body))
        return answer

"""Root side: which ranks a person means by ``memory``; `meshrt.memory` does the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshrt.debug.broker.doing import chosen
from meshrt.debug.broker.targets import Targets
from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.hooks.plugins import plugins
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.memory.asked import MILLISECONDS, OBJECTS, Asked

__all__ = ["Memory"]


class Memory:
    """The operation ``debug.memory``. On the root's loop."""

    def __init__(self, services: RootServices, targets: Targets) -> None:
        self._services = services
        self._targets = targets

    async def memory(self, client: ToolClient, body: Body) -> Body:
        """Return memory, as it is asked for; all of it is optional.

        Args:
            body: ``{actor, ranks, variables, opened, frames, milliseconds, objects, references}``.

        Raises:
            UsageError: There is no such actor, no such variable, or a limit is no limit.
            SelectionError: No such ranks.
        """
        actor = str(body.get("actor", ""))
        asked = Asked(
            chosen(self._targets, body),
            self._targets.bare_name(actor) if actor else "",
            variables=bool(body.get("variables")),
            opened=str(body.get("opened") or ""),
            frames=bool(body.get("frames")),
            milliseconds=_limit(body, "milliseconds", MILLISECONDS),
            objects=_limit(body, "objects", OBJECTS),
            references=_name(body.get("references")),
            chosen=bool(actor or body.get("ranks")),
        )
        plugins.load("memory", self._services, in_root=True)
        answer: Body = await self._services.tables["memory.view"].collect(asked)
        return answer


def _name(value: Any) -> str | None:
    """Return the beginning of a reference's name, or None."""
    if value is None or (isinstance(value, str) and all(letter in "0123456789abcdef" for letter in value)):
        return value
    raise UsageError(f"references are named by hexadecimal digits, as meshrt memory --refs shows them; not {value!r}")


def _limit(body: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a limit that was given: a number, or null for none."""
    value = body.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value < float("inf")):
        raise UsageError(f"{name} is a number, 0 or more, or null for no limit; not {value!r}")
    return value

"""``MESHRT_DEBUG=0`` switches the debugger of a program off: no rank stops, and no expression is evaluated in it.

Operations that only look from outside still work: states, stacks, output, the memory of variables.
"""

from __future__ import annotations

import os
from typing import NoReturn

from meshrt.errors import UsageError
from meshrt.hooks.plugins import SWITCH_VALUES
from meshrt.hooks.services import ToolClient

__all__ = ["SWITCH", "refuse", "switched_off"]

SWITCH = "MESHRT_DEBUG"


def switched_off() -> bool:
    """Whether the debugger is switched off in this process. An invalid value was refused when the mesh was made."""
    return SWITCH_VALUES.get(os.environ.get(SWITCH, "")) is False


async def refuse(_client: ToolClient, _asked: object) -> NoReturn:
    """Refuse an operation: the debugger is switched off. Raises UsageError, always."""
    raise UsageError(
        f"the debugger of this program is switched off ({SWITCH}={os.environ.get(SWITCH)}); what only looks still "
        "works: where, list, status, logs, memory, vars"
    )

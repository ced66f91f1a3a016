"""``MESHRT_DEBUG=0`` switches the debugger of a program off: nothing stops in it, and nobody evaluates anything in it.

What only looks from outside stays: states, stacks, output, how much memory variables have.
"""

from __future__ import annotations

import os

from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.hooks.plugins import DEBUG_VALUES
from meshrt.hooks.services import ToolClient

__all__ = ["RUNS_CODE", "SWITCH", "refuse", "switched_off"]

SWITCH = "MESHRT_DEBUG"
#: Operations of the broker that run code in ranks, or stop them.
RUNS_CODE = (
    "debug.attach",
    "debug.send",
    "debug.complete",
    "debug.cast",
    "debug.print",
    "debug.interrupt",
    "debug.break",
    "debug.postmortem",
)


def switched_off() -> bool:
    """Whether the debugger is switched off in this process; a value that is not known was refused with the mesh."""
    return not DEBUG_VALUES.get(os.environ.get(SWITCH, ""), True)


async def refuse(_client: ToolClient, _body: Body) -> Body | None:
    """Serve an operation of a debugger that is switched off. Raises UsageError."""
    raise UsageError(
        f"the debugger of this program is switched off ({SWITCH}={os.environ.get(SWITCH)}); what only looks still "
        "works: where, list, status, logs, memory, vars"
    )

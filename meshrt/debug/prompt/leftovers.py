"""Terminal side: the breakpoints and stopped ranks that a failed script of commands leaves in the program."""

from __future__ import annotations

from collections.abc import Collection

from meshrt.debug.operations import Breaks
from meshrt.debug.prompt.client import Client
from meshrt.debug.prompt.tables import by_actor
from meshrt.errors import MeshError
from meshrt.escapes import escaped
from meshrt.inspect.operations import ListRanks

__all__ = ["left_behind"]


def left_behind(client: Client, own: Collection[int]) -> str:
    """Return one line about the breakpoints of a script and the stopped ranks, or "" if there are none.

    Args:
        own: The ids of the breakpoints that the script has set; some may be deleted already.
    """
    try:
        breaks = client.ask(Breaks()).breaks if own else []
        rows = client.ask(ListRanks(state="stopped")).rows
    except (MeshError, OSError) as error:  # a TimeoutError is an OSError
        return f"what is left behind is not known: {str(error) or 'the program does not answer'}"
    left = [f"breakpoint {row.id} at {row.place} (clear {row.id})" for row in breaks if row.id in own]
    left += [f"stopped ranks: {by_actor(rows)} (continue)"] if rows else []
    return escaped(f"left behind: {'; '.join(left)}") if left else ""

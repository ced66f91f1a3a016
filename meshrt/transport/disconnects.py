"""Links whose connection has ended, while it is not known whether their rank has.

The end of a stream is not the end of a process: a fork of user code may hold the socket, user code may have closed it.
The calls of such a link fail when the control tree tells how its rank has ended, or as lost with the link after
`DISCONNECTED_SECONDS`; those of a link to another machine after `VERDICT_SECONDS`, by when it is known whether that
machine is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from meshrt.transport.linktable import LinkTable
from meshrt.transport.liveness import VERDICT_SECONDS
from meshrt.transport.outlink import OutLink
from meshrt.transport.tree import Tree

__all__ = ["DISCONNECTED_SECONDS", "Disconnects"]

#: Seconds for which a link may be disconnected before it is lost, if the end of its rank is not known until then.
DISCONNECTED_SECONDS = 2.0


class Disconnects:
    """The disconnected links, and when each of them is overdue. The lead is held, unless said otherwise.

    Args:
        table: Reads such a link no more.
        tree: Calls after a while.
        look: Has the links looked at; returns False when the driver is closed.

    Attributes:
        deadlines: link -> monotonic seconds.
    """

    def __init__(self, table: LinkTable, tree: Tree, look: Callable[[], bool]) -> None:
        self._table = table
        self._tree = tree
        self._look = look
        self._look_planned = False
        self.deadlines: dict[OutLink, float] = {}

    def add(self, out: OutLink) -> None:
        """The connection of a link has ended, or cannot be made. Any thread."""
        self._table.release(out)
        if not out.disconnected and out.fate is None:
            out.disconnected = True
            seconds = VERDICT_SECONDS if out.elsewhere else DISCONNECTED_SECONDS
            self.deadlines[out] = time.monotonic() + seconds
            self._plan_look()

    def seconds_left(self) -> float:
        """Return the time until the first one is overdue, >= 0; there is one."""
        return max(0.0, min(self.deadlines.values()) - time.monotonic())

    def overdue(self) -> list[OutLink]:
        """Return those that are lost."""
        now = time.monotonic()
        return [out for out, deadline in tuple(self.deadlines.items()) if deadline <= now]

    def remove(self, out: OutLink) -> None:
        """The fate of a link's rank is known; a no-op for one that is not disconnected."""
        self.deadlines.pop(out, None)

    def _plan_look(self) -> None:
        # A waiting thread looks by itself; a task that awaits, or a callback, waits for a descriptor.
        if not self._look_planned:
            self._look_planned = True
            self._tree.call_later(DISCONNECTED_SECONDS + 0.01, self._look_again)

    def _look_again(self) -> None:
        self._look_planned = False
        if self.deadlines and self._look() and self.deadlines:
            self._plan_look()

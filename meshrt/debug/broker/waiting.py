"""Root side: what terminals are told when sessions change: how many ranks are stopped, and the end of a ``wait``."""

from __future__ import annotations

import asyncio
import contextlib
import time

from meshrt.debug.broker.sessions import SessionTable
from meshrt.debug.operations import Count, Notice, Wait, WaitResult
from meshrt.debug.protocol import BUSY, RUNNING, STEPPING, STOPPED
from meshrt.errors import MeshError
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.program.targets import Targets

__all__ = ["Changes"]

#: Seconds in which changes are gathered.
_GATHER_SECONDS = 0.005
#: Seconds after which a terminal in ``wait`` is told why it still waits.
_HINT_SECONDS = 1.0
_LONGEST_WAIT = 24 * 3600.0


class Changes:
    """The changes of the table of sessions. On the root's loop."""

    def __init__(self, services: RootServices, table: SessionTable, targets: Targets) -> None:
        self._services = services
        self._table = table
        self._targets = targets
        #: The connected terminals, by id.
        self._clients: dict[int, ToolClient] = {}
        #: Set for a moment only: the requests that wait for it go on.
        self._changed = asyncio.Event()
        self._told: Count | None = None
        self._touched = False

    def add(self, client: ToolClient) -> Count:
        """A terminal has connected: it is told of changes. Returns the present counts."""
        self._clients[client.id] = client
        self._told = None
        self.touch()
        return self._count()

    def remove(self, client: ToolClient) -> None:
        """A terminal has closed."""
        self._clients.pop(client.id, None)

    def touch(self) -> None:
        """Take in that sessions have changed: `_tell` runs once for all changes of `_GATHER_SECONDS`."""
        if not self._touched:
            self._touched = True
            self._services.call_later(_GATHER_SECONDS, self._tell)

    def _tell(self) -> None:
        """Wake the requests in `wait`, and tell the terminals how many ranks are stopped."""
        self._touched = False
        self._changed.set()
        self._changed.clear()
        count = self._count()
        if count != self._told:
            self._told = count
            for client in self._clients.values():
                client.report(count)

    def _count(self) -> Count:
        return Count(self._table.count(STOPPED, BUSY, STEPPING), self._table.count(RUNNING))

    async def wait(self, client: ToolClient, asked: Wait) -> WaitResult:
        """Wait until all ranks of a selection are stopped; the actor may be spawned later.

        Raises:
            UsageError: A rank has ended, or no such actor at the end of the wait.
            SelectionError: No such ranks at the end of the wait.
        """
        deadline = time.monotonic() + min(asked.seconds, _LONGEST_WAIT)
        hint = time.monotonic() + _HINT_SECONDS
        while True:
            stopped, missing, problem = self._still_missing(asked)
            seconds = deadline - time.monotonic()
            if problem is not None and time.monotonic() > hint:
                hint = deadline
                headline = str(problem).partition("\n")[0]
                client.report(Notice(f"still waiting: {headline}"))
            if not missing and problem is None:
                return WaitResult(sorted(stopped), [])
            if seconds <= 0 or client.id not in self._clients:
                if problem is not None:
                    raise problem
                return WaitResult(sorted(stopped), sorted(missing))
            with contextlib.suppress(TimeoutError):
                # Spawning an actor does not change the table of sessions, so `_changed` does not tell of it.
                async with asyncio.timeout(min(seconds, 0.5 if problem is not None else 60.0)):
                    await self._changed.wait()

    def _still_missing(self, asked: Wait) -> tuple[set[int], set[int], MeshError | None]:
        try:
            selected = self._targets.select(asked.actor, asked.ranks)
        except MeshError as problem:
            return set(), set(), problem
        ended = selected.actor.mesh.ended
        dead = [rank for rank in selected.ranks if rank in ended]
        if dead:
            raise MeshError(f"rank {dead[0]} of {selected.actor.label} will not stop: it {ended[dead[0]]}")
        stopped = {rank for rank, session in self._table.among(selected).items() if session.state == STOPPED}
        return stopped, set(selected.ranks) - stopped, None

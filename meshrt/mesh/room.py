"""Calls on an event loop to a rank that does not take its messages: they are refused, or wait for room.

A thread that calls waits in the call. An event loop must not wait there: other tasks, the answers among them, would
wait, too. So a call is refused (`MeshBusy`) where too much is queued for one of its ranks, before anything is pickled
or sent; and a task waits by itself (`wait_ready`), until so little is queued that a thread would not wait.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from meshrt.errors import CallTimeout, MeshBusy
from meshrt.hooks.facts import Wait
from meshrt.mesh.future import Future
from meshrt.mesh.target import Target
from meshrt.transport.driver import Driver
from meshrt.transport.queues import LOOP_LIMIT
from meshrt.transport.threads import may_wait

if TYPE_CHECKING:
    import asyncio

__all__ = ["positions_with_room", "refuse_if_busy", "wait_ready"]


def refuse_if_busy(target: Target, endpoint: str, driver: Driver) -> None:
    """Raise MeshBusy if a call on this event loop would add to a full queue. Threads may wait instead."""
    if may_wait():
        return
    busy = driver.queues.busy(target.links(driver))
    if busy:
        slowest = max(busy, key=lambda position: busy[position])
        others = [target.place(position) for position in busy if position != slowest]
        raise MeshBusy(target.place(slowest), endpoint, busy[slowest], LOOP_LIMIT, others)


def positions_with_room(target: Target, driver: Driver) -> list[int]:
    """Return the ranks that a call on this event loop may be sent to; all of them if all are busy."""
    everybody = list(range(len(target.shape)))
    if may_wait():
        return everybody
    busy = driver.queues.busy(target.links(driver))
    return [position for position in everybody if position not in busy] or everybody


async def wait_ready(target: Target, endpoint: str) -> None:
    """Wait until every rank of the target has room for a call, or has ended.

    Tasks are let through in the order in which they came. The one that is let through may call before the next one is.
    """
    driver = target.runtime().driver
    outs = target.links(driver)
    async with _gate(target):
        while not driver.queues.has_room(outs):
            room = _Room(driver, target, endpoint)
            forget = driver.queues.when_room(outs, room.finish)
            try:
                await room
            finally:
                forget()


def _gate(target: Target) -> asyncio.Lock:
    """Return the queue of this event loop's waiting tasks."""
    import asyncio  # start-up: code that awaits has loaded it

    loop = asyncio.get_running_loop()
    if target.gates is None:
        target.gates = weakref.WeakKeyDictionary()
    gate = target.gates.get(loop)
    if gate is None:
        gate = target.gates[loop] = asyncio.Lock()
    return gate


class _Room(Future[None]):
    """Done when the ranks of a target have room."""

    __slots__ = ("_endpoint", "_target", "_writer")
    disturbable = True

    def __init__(self, driver: Driver, target: Target, endpoint: str) -> None:
        super().__init__(driver)
        self._writer = driver
        self._target = target
        self._endpoint = endpoint

    def _produce(self) -> None:
        """Return None: it has no value."""

    def _slow(self) -> list[int]:
        ranks = self._target.shape.ndslice
        outs = self._target.links(self._writer)
        return [ranks[position] for position, out in enumerate(outs) if not self._writer.queues.has_room([out])]

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether the end of the rank ends this wait."""
        return mesh_id == self._target.mesh_id and rank in self._slow()

    def awaited(self) -> Wait | None:
        """See `meshrt.transport.pending.Pending.awaited`."""
        slow = [] if self.finished else self._slow()
        if not slow:
            return None
        return Wait(self._target.mesh_id, self._target.name, self._endpoint, tuple(slow[:64]), len(slow))

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`."""
        return CallTimeout(f"{self._target.name}.{self._endpoint}.wait_ready()", seconds, (), len(self._target.shape))

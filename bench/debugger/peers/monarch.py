"""Monarch (torchmonarch): one proc mesh on this host, blocking ``get``, async endpoints that stop.

Two defaults are changed: the port of its debugger, so that two programs do not meet, and the hook for unhandled
faults, as in :mod:`bench.peers.monarch`.
"""
# Without Monarch, its base class and decorator have no types.
# mypy: disable-error-code="misc,untyped-decorator"

import os
import socket
from typing import Any

import monarch.actor
from monarch.actor import Actor, current_rank, endpoint, shutdown_context, this_host

from bench.debugger.protocol import ACTOR, Peer

__all__ = ["PEER", "Walker"]

STEPS = 1000
"""Steps of the loop behind the breakpoint, two lines each: more than any run casts ``n``."""


class Walker(Actor):
    """The actor that stops."""

    @endpoint
    async def ping(self) -> None:
        """Answer at once."""

    @endpoint
    async def walk(self) -> int:
        """Stop, and have two lines to step to and fro."""
        rank: int = current_rank().rank
        breakpoint()
        place = rank
        for step in range(STEPS):
            place = rank + step
        return place


class Walkers:
    """A running proc mesh with a :class:`Walker` on every rank."""

    def __init__(self, count: int) -> None:
        with socket.create_server(("localhost", 0)) as free:
            self.address = str(free.getsockname()[1])
        os.environ["MONARCH_DEBUG_SERVER_PORT"] = self.address
        monarch.actor.unhandled_fault_hook = lambda failure: None
        self._procs: Any = this_host().spawn_procs(per_host={"gpus": count})
        self._all: Any = self._procs.spawn(ACTOR, Walker)

    async def ping(self) -> int:
        return len(self._all.ping.call().get().values())

    async def play(self, act: str, folder: str) -> None:
        self._all.walk.call().get()

    async def stop(self) -> None:
        self._procs.stop().get()
        shutdown_context().get()


async def start(count: int) -> Walkers:
    """Start ``count`` processes on this host; ``spawn`` does not wait, the first call does."""
    return Walkers(count)


PEER = Peer("monarch", start, ("stopped",))

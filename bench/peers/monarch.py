"""Monarch (torchmonarch): one proc mesh on this host, blocking ``get``, async endpoints, its defaults.

One default is changed: the hook for unhandled faults, which otherwise interrupts the whole program at
the death of an actor, before its caller sees an error.
"""
# Without Monarch, its base class and decorator have no types.
# mypy: disable-error-code="misc,untyped-decorator"

import asyncio
import os
from typing import Any

import monarch.actor
from monarch.actor import Actor, endpoint, shutdown_context, this_host

from bench.peers.protocol import Array, Peer, announce, filled, touch

__all__ = ["PEER", "Echo"]


class Echo(Actor):
    """The actor that every row calls."""

    def __init__(self) -> None:
        self._made: dict[int, Array] = {}

    @endpoint
    async def ping(self) -> None:
        """Answer at once."""

    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def put(self, array: Array) -> int:
        return touch(array)

    @endpoint
    async def fetch(self, size: int) -> Array:
        if size not in self._made:
            self._made[size] = filled(size)
        return self._made[size]

    @endpoint
    async def back(self, array: Array) -> Array:
        touch(array)
        return array

    @endpoint
    async def block(self, started: str) -> None:
        announce(started)
        await asyncio.sleep(60)


class Mesh:
    """A running proc mesh with an :class:`Echo` on every rank."""

    def __init__(self, count: int) -> None:
        monarch.actor.unhandled_fault_hook = lambda failure: None
        self._procs: Any = this_host().spawn_procs(per_host={"gpus": count})
        self._all: Any = self._procs.spawn("echo", Echo)
        self._one: Any = self._all.slice(gpus=0)

    async def pids(self) -> list[int]:
        return list(self._all.pid.call().get().values())

    async def call_one(self) -> None:
        self._one.ping.call_one().get()

    async def call_all(self) -> int:
        return len(self._all.ping.call().get().values())

    async def pipeline_one(self, calls: int) -> None:
        ping = self._one.ping
        futures = [ping.call_one() for _ in range(calls)]
        for future in futures:
            future.get()

    async def pipeline_all(self, calls: int) -> None:
        ping = self._all.ping
        futures = [ping.call() for _ in range(calls)]
        for future in futures:
            future.get()

    async def put_one(self, array: Array) -> int:
        touched: int = self._one.put.call_one(array).get()
        return touched

    async def put_all(self, array: Array) -> list[int]:
        return list(self._all.put.call(array).get().values())

    async def get_one(self, size: int) -> Array:
        return self._one.fetch.call_one(size).get()

    async def back_one(self, array: Array) -> Array:
        return self._one.back.call_one(array).get()

    async def block(self, rank: int, started: str) -> None:
        self._all.slice(gpus=rank).block.call_one(started).get()

    async def stop(self) -> None:
        self._procs.stop().get()
        shutdown_context().get()


async def start(count: int) -> Mesh:
    """Start ``count`` processes on this host; ``spawn`` does not wait, the first call does."""
    return Mesh(count)


PEER = Peer(start)

"""xoscar: one actor pool with ``N`` sub-processes, awaited inside a running uvloop, as it is meant to be.

One default is changed: a process that died is not replaced, or the caller would never see its death.
"""
# Without xoscar, its base class has no type.
# mypy: disable-error-code="misc"

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop
import xoscar
from xoscar.backends.allocate_strategy import ProcessIndex

from bench.peers.protocol import Array, Peer, announce, filled, touch

__all__ = ["PEER", "Echo"]

T = TypeVar("T")


class Echo(xoscar.Actor):
    """The actor that every row calls."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, Array] = {}

    def ping(self) -> None:
        """Answer at once."""

    def pid(self) -> int:
        return os.getpid()

    def put(self, array: Array) -> int:
        return touch(array)

    def back(self, array: Array) -> Array:
        touch(array)
        return array

    def fetch(self, size: int) -> Array:
        if size not in self._made:
            self._made[size] = filled(size)
        return self._made[size]

    async def block(self, started: str) -> None:
        announce(started)
        await asyncio.sleep(60)


class Pool:
    """A running actor pool with one actor in each sub-process."""

    def __init__(self, pool: Any, actors: list[Any]) -> None:
        self._pool = pool
        self._actors = actors

    async def pids(self) -> list[int]:
        return list(await asyncio.gather(*(actor.pid() for actor in self._actors)))

    async def call_one(self) -> None:
        await self._actors[0].ping()

    async def call_all(self) -> int:
        return len(await asyncio.gather(*(actor.ping() for actor in self._actors)))

    async def pipeline_one(self, calls: int) -> None:
        ping = self._actors[0].ping
        await asyncio.gather(*(ping() for _ in range(calls)))

    async def pipeline_all(self, calls: int) -> None:
        await asyncio.gather(*(actor.ping() for _ in range(calls) for actor in self._actors))

    async def put_one(self, array: Array) -> int:
        touched: int = await self._actors[0].put(array)
        return touched

    async def put_all(self, array: Array) -> list[int]:
        return list(await asyncio.gather(*(actor.put(array) for actor in self._actors)))

    async def get_one(self, size: int) -> Array:
        return await self._actors[0].fetch(size)

    async def back_one(self, array: Array) -> Array:
        return await self._actors[0].back(array)

    async def block(self, rank: int, started: str) -> None:
        await self._actors[rank].block(started)

    async def stop(self) -> None:
        await self._pool.stop()


async def start(count: int) -> Pool:
    """Start a pool on the loopback address and create its actors."""
    pool = await xoscar.create_actor_pool("127.0.0.1", n_process=count, auto_recover=False)
    actors = [
        await xoscar.create_actor(
            Echo, address=pool.external_address, uid=f"echo-{rank}", allocate_strategy=ProcessIndex(rank + 1)
        )
        for rank in range(count)
    ]
    return Pool(pool, actors)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run in a fresh uvloop."""
    return uvloop.run(main)


PEER = Peer(start, run)

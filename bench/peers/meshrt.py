"""meshrt: one proc mesh along one dimension, its blocking API, sync endpoints."""

import os
import time

from bench.peers.protocol import Array, Peer, announce, filled, touch
from meshrt import Actor, endpoint, proc_mesh, shutdown_context

__all__ = ["PEER", "Echo"]


class Echo(Actor):
    """The actor that every row calls."""

    def __init__(self) -> None:
        self._made: dict[int, Array] = {}

    @endpoint
    def ping(self) -> None:
        """Answer at once."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def put(self, array: Array) -> int:
        return touch(array)

    @endpoint
    def fetch(self, size: int) -> Array:
        if size not in self._made:
            self._made[size] = filled(size)
        return self._made[size]

    @endpoint
    def back(self, array: Array) -> Array:
        touch(array)
        return array

    @endpoint
    def block(self, started: str) -> None:
        announce(started)
        time.sleep(60)


class Mesh:
    """A running proc mesh with an :class:`Echo` on every rank."""

    def __init__(self, count: int) -> None:
        self._procs = proc_mesh(gpus=count)
        self._all = self._procs.spawn("echo", Echo).get()
        self._one = self._all.slice(gpus=0)

    async def pids(self) -> list[int]:
        return list(self._all.pid.call().get().values())

    async def call_one(self) -> None:
        self._one.ping.call_one().get()

    async def call_all(self) -> int:
        return len(list(self._all.ping.call().get().values()))

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
        self._procs.stop()
        shutdown_context()


async def start(count: int) -> Mesh:
    """Start ``count`` ranks on this host."""
    return Mesh(count)


PEER = Peer(start)

"""Ray: one local cluster, one actor a process, ``ray.get``; no dashboard, otherwise its defaults.

An array that goes to all actors is put into the object store once, as Ray's users do.
"""

import os
import tempfile
import time
from typing import Any

import ray

from bench.peers.protocol import Array, Peer, announce, filled, touch

__all__ = ["PEER", "Echo"]


class Echo:
    """The actor that every row calls."""

    def __init__(self) -> None:
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

    def block(self, started: str) -> None:
        announce(started)
        time.sleep(60)


class Cluster:
    """A local cluster with ``count`` actors."""

    def __init__(self, count: int) -> None:
        ray.init(
            address="local",
            num_cpus=count,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=f"{tempfile.gettempdir()}/ray",
        )
        actor = ray.remote(Echo)
        self._actors: list[Any] = [actor.remote() for _ in range(count)]

    async def pids(self) -> list[int]:
        return list(ray.get([actor.pid.remote() for actor in self._actors]))

    async def call_one(self) -> None:
        ray.get(self._actors[0].ping.remote())

    async def call_all(self) -> int:
        return len(ray.get([actor.ping.remote() for actor in self._actors]))

    async def pipeline_one(self, calls: int) -> None:
        ping = self._actors[0].ping
        ray.get([ping.remote() for _ in range(calls)])

    async def pipeline_all(self, calls: int) -> None:
        ray.get([actor.ping.remote() for _ in range(calls) for actor in self._actors])

    async def put_one(self, array: Array) -> int:
        touched: int = ray.get(self._actors[0].put.remote(array))
        return touched

    async def put_all(self, array: Array) -> list[int]:
        stored = ray.put(array)
        return list(ray.get([actor.put.remote(stored) for actor in self._actors]))

    async def get_one(self, size: int) -> Array:
        return ray.get(self._actors[0].fetch.remote(size))

    async def back_one(self, array: Array) -> Array:
        return ray.get(self._actors[0].back.remote(array))

    async def block(self, rank: int, started: str) -> None:
        ray.get(self._actors[rank].block.remote(started))

    async def stop(self) -> None:
        ray.shutdown()


async def start(count: int) -> Cluster:
    """Start a local cluster; creating an actor does not wait, the first call does."""
    return Cluster(count)


PEER = Peer(start)

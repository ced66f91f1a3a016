"""meshrt: one proc mesh along one dimension, references that ranks have put."""

from typing import Any

from bench.peers.protocol import Peer
from meshrt import Actor, endpoint, proc_mesh, put, shutdown_context

__all__ = ["PEER", "Keeper"]


class Keeper(Actor):
    """Keeps references."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    @endpoint
    def put(self, count: int) -> int:
        self._kept = [put(number, lazy=True) for number in range(count)]
        return len(self._kept)


class Keepers:
    """A running proc mesh with a :class:`Keeper` on every rank."""

    def __init__(self, count: int) -> None:
        self._procs = proc_mesh(gpus=count)
        self._all: Any = self._procs.spawn("keeper", Keeper).get()

    def put(self, count: int) -> int:
        """Have every rank put ``count`` objects; return how many there are."""
        return sum(self._all.put.call(count).get().values())

    def stop(self) -> None:
        self._procs.stop()
        shutdown_context()


async def start(count: int) -> Any:
    """Start ``count`` ranks on this host."""
    return Keepers(count)


PEER = Peer(start)

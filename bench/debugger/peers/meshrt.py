"""meshrt: one proc mesh along one dimension, its blocking API, sync endpoints."""

import os

from bench.debugger.protocol import ACTOR, Peer
from bench.debugger.walker import Walker
from meshrt import ProcMesh, proc_mesh, shutdown_context

__all__ = ["PEER", "Walkers"]


class Walkers:
    """A running proc mesh with a :class:`bench.debugger.walker.Walker` on every rank."""

    def __init__(self, procs: ProcMesh) -> None:
        self.address = str(os.getpid())
        self._procs = procs
        self._all = self._procs.spawn(ACTOR, Walker).get()

    async def ping(self) -> int:
        return len(list(self._all.ping.call().get().values()))

    async def play(self, act: str, folder: str) -> None:
        if act == "blocked":
            self._all.receive.call(folder).get()
        else:
            self._all.walk.call().get()

    async def stop(self) -> None:
        self._procs.stop()
        shutdown_context()


async def start(count: int) -> Walkers:
    """Start ``count`` ranks on this host."""
    return Walkers(proc_mesh(gpus=count))


PEER = Peer("meshrt", start, ("stopped", "blocked"), ("cost",))

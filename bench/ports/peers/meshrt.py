"""meshrt: one rank that counts, by broadcasts and by the messages of a port that it has opened."""

import statistics
import time
from typing import Any

from bench.peers.protocol import Peer
from meshrt import Actor, Channel, Port, endpoint, proc_mesh, shutdown_context

__all__ = ["PEER", "Counter"]


class Counter(Actor):
    """Counts messages."""

    def __init__(self) -> None:
        self._count = 0

    @endpoint
    def open(self) -> Port[int]:
        port, self._receiver = Channel[int].open()
        return port

    @endpoint
    def note(self, number: int) -> None:
        self._count += number

    @endpoint
    def take(self, count: int) -> int:
        return sum(self._receiver.recv().get() for _ in range(count))

    @endpoint
    def taken(self) -> int:
        taken, self._count = self._count, 0
        return taken


class Counting:
    """A running program of one rank."""

    def __init__(self, _count: int) -> None:
        self._procs = proc_mesh()
        self._one: Any = self._procs.spawn("counter", Counter).get()
        self._port: Port[int] = self._one.open.call_one().get()

    def broadcasts(self, count: int) -> tuple[float, int]:
        """Return the seconds until so many broadcasts were served, and how many were."""
        begin = time.perf_counter()
        for _ in range(count):
            self._one.note.broadcast(1)
        served = self._one.taken.call_one().get()
        return time.perf_counter() - begin, served

    def sends(self, count: int) -> tuple[float, int]:
        """Return the seconds until so many messages to the port were taken, and how many were."""
        begin = time.perf_counter()
        taken = self._one.take.call_one(count)
        for _ in range(count):
            self._port.send(1)
        found = taken.get()
        return time.perf_counter() - begin, found

    def ratio(self, count: int, turns: int) -> float:
        """Return how many times longer messages to a port take than broadcasts, turn by turn."""
        ratios = []
        for _ in range(turns):
            (by_port, taken), (by_broadcast, served) = self.sends(count), self.broadcasts(count)
            if (taken, served) != (count, count):
                raise RuntimeError(f"{taken} messages were taken and {served} served; expected {count}")
            ratios.append(by_port / by_broadcast)
        return statistics.median(ratios)

    def stop(self) -> None:
        self._procs.stop()
        shutdown_context()


async def start(count: int) -> Any:
    """Start one rank on this host."""
    return Counting(count)


PEER = Peer(start)

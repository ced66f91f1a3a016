"""The baseline: bare ``multiprocessing``, start method forkserver, one duplex ``Pipe`` a worker.

No names, no errors, no supervision: what a user would write in a page. A call is one ``send`` and one
``recv`` of a small tuple; a call on all sends to every worker before it receives from any.
"""

import os
import time
from collections import deque
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from bench.peers.protocol import Array, Peer, announce, filled, touch

__all__ = ["PEER"]

WINDOW = 128
"""Requests in flight on one pipe: a blocking ``send`` waits for room beyond some 270 small ones."""

Request = tuple[str, Any]


def work(connection: Connection) -> None:
    """Serve requests in the worker until the other end of the pipe is closed."""
    made: dict[int, Array] = {}
    while True:
        try:
            verb, argument = connection.recv()
        except EOFError:
            return
        if verb == "ping":
            connection.send(None)
        elif verb == "pid":
            connection.send(os.getpid())
        elif verb == "put":
            connection.send(touch(argument))
        elif verb == "back":
            touch(argument)
            connection.send(argument)
        elif verb == "get":
            if argument not in made:
                made[argument] = filled(argument)
            connection.send(made[argument])
        elif verb == "block":
            announce(argument)
            time.sleep(60)


class Workers:
    """The running workers, by rank."""

    def __init__(self, processes: list[BaseProcess], pipes: list[Connection]) -> None:
        self._processes = processes
        self._pipes = pipes

    async def pids(self) -> list[int]:
        return self._ask_all(("pid", None))

    async def call_one(self) -> None:
        self._ask(0, ("ping", None))

    async def call_all(self) -> int:
        return len(self._ask_all(("ping", None)))

    async def pipeline_one(self, calls: int) -> None:
        self._pipeline(self._pipes[:1], calls)

    async def pipeline_all(self, calls: int) -> None:
        self._pipeline(self._pipes, calls)

    async def put_one(self, array: Array) -> int:
        touched: int = self._ask(0, ("put", array))
        return touched

    async def put_all(self, array: Array) -> list[int]:
        return self._ask_all(("put", array))

    async def get_one(self, size: int) -> Array:
        return self._ask(0, ("get", size))

    async def back_one(self, array: Array) -> Array:
        return self._ask(0, ("back", array))

    async def block(self, rank: int, started: str) -> None:
        self._ask(rank, ("block", started))

    async def stop(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()
        # The two helpers of multiprocessing otherwise live as long as the interpreter.
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]

    def _ask(self, rank: int, request: Request) -> Any:
        self._pipes[rank].send(request)
        return self._pipes[rank].recv()

    def _ask_all(self, request: Request) -> list[Any]:
        pickled = ForkingPickler.dumps(request)
        for pipe in self._pipes:
            pipe.send_bytes(pickled)
        return [pipe.recv() for pipe in self._pipes]

    def _pipeline(self, pipes: list[Connection], calls: int) -> None:
        """Send ``calls`` requests on each pipe, receiving only where the window is full."""
        waiting: deque[Connection] = deque()
        for _ in range(calls):
            for pipe in pipes:
                if len(waiting) == WINDOW * len(pipes):
                    waiting.popleft().recv()
                pipe.send(("ping", None))
                waiting.append(pipe)
        for pipe in waiting:
            pipe.recv()


async def start(count: int) -> Workers:
    """Start ``count`` workers; the far ends of the pipes are closed here, so a death reads as EOF."""
    context = get_context("forkserver")
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    for _ in range(count):
        near, far = context.Pipe()
        process = context.Process(target=work, args=(far,), daemon=True)
        process.start()
        far.close()
        processes.append(process)
        pipes.append(near)
    return Workers(processes, pipes)


PEER = Peer(start)

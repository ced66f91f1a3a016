"""Actors that stop; ``# @name`` marks a line. Ranks import this module, so it imports no test tools."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

from meshrt import Actor, current_rank, endpoint
from tests.support.markers import marked_line

__all__ = ["Asynchronous", "Debugee", "Stubborn", "line_of"]


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


def double(value: int) -> int:
    result = value * 2  # @double
    return result


class Debugee(Actor):
    """Stops wherever one can."""

    @endpoint
    def work(self, value: int = 10) -> int:
        rank = current_rank().rank
        breakpoint()  # @work
        answer = double(value) + rank  # @after
        return answer  # @return

    @endpoint
    def set_trace(self) -> int:
        import pdb

        rank = current_rank().rank
        pdb.set_trace()  # @set_trace
        return rank

    @endpoint
    def loop(self, n: int) -> int:
        for _ in range(n):
            breakpoint()  # @loop
        return n

    @endpoint
    def some(self, ranks: list[int]) -> int:
        rank = current_rank().rank
        if rank in ranks:
            breakpoint()  # @some
        return rank

    @endpoint
    def fail(self) -> None:
        rank = current_rank().rank
        breakpoint()
        raise ValueError(f"rank {rank} is bad")  # @raise

    @endpoint
    def fail_without_stop(self) -> None:
        raise ValueError("no stop before")

    @endpoint
    def thread(self) -> list[int]:
        results: list[int] = []

        def in_thread() -> None:
            breakpoint()  # @thread
            results.append(7)

        worker = threading.Thread(target=in_thread, name="Helper")
        worker.start()
        worker.join()
        return results

    @endpoint
    def nap(self, seconds: float) -> str:
        breakpoint()
        time.sleep(seconds)  # @nap
        return "awake"

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def hot(self, n: int) -> float:
        """Return the seconds that a loop takes, after a stop when asked for."""
        if n < 0:
            breakpoint()
        start = time.perf_counter()
        total = 0
        for i in range(abs(n)):
            total += i
        return time.perf_counter() - start


class Asynchronous(Actor):
    """Async endpoints."""

    @endpoint
    async def work(self, value: int) -> int:
        breakpoint()  # @async
        got = await self.fetch(value)  # @await
        return got + 1  # @awaited

    async def fetch(self, value: int) -> int:
        await asyncio.sleep(0.01)  # @fetch
        return value * 2  # @fetched

    @endpoint
    async def ping(self) -> str:
        return "pong"


class Stubborn(Actor):
    """Stops before it is ready."""

    def __init__(self, value: Any) -> None:
        self.value = value
        breakpoint()  # @init
        self.ready = True

    @endpoint
    def value_of(self) -> Any:
        return self.value

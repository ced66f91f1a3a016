"""An actor whose calls take turns on one event loop; markers name its lines."""

from __future__ import annotations

import asyncio

from meshrt import Actor, concurrent_endpoint, endpoint
from tests.support.markers import marked_line

__all__ = ["Turns", "line_of"]


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


class Turns(Actor):
    def __init__(self) -> None:
        self.gates: dict[int, asyncio.Event] = {}
        self.going = True

    def gate(self, number: int) -> asyncio.Event:
        return self.gates.setdefault(number, asyncio.Event())

    @concurrent_endpoint
    async def take(self, number: int) -> int:
        breakpoint()  # @take
        await self.gate(number).wait()  # @wait
        result = number + 1  # @woken
        return result

    @concurrent_endpoint
    async def plain(self, number: int) -> int:
        await self.gate(number).wait()  # @plain
        return -number

    @concurrent_endpoint
    async def turn(self) -> int:
        rounds = 0
        while self.going:
            rounds += 1  # @round
            await asyncio.sleep(0.001)
        return min(1, rounds)

    @concurrent_endpoint
    async def fail(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("of this call only")  # @raised

    @endpoint
    def let_in(self, number: int) -> None:
        self.gate(number).set()

    @endpoint
    def finish(self) -> None:
        self.going = False

"""An actor whose calls take turns on one event loop; markers name its lines."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from meshrt import Actor, concurrent_endpoint, endpoint
from tests.support.markers import marked_line

__all__ = ["Turns", "line_of"]


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


def helper(number: int) -> int:
    return number + 1  # @helper


def users_own(frame: FrameType, event: str, arg: Any) -> Any:
    return users_own


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
        return result  # @result

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
    async def help(self, number: int) -> int:
        breakpoint()
        await self.gate(number).wait()
        return helper(number)

    @concurrent_endpoint
    async def traced(self, number: int) -> bool:
        sys.settrace(users_own)
        await self.gate(number).wait()
        breakpoint()
        same = sys.gettrace() is users_own
        sys.settrace(None)
        return same

    @concurrent_endpoint
    async def start_task(self) -> None:
        self.task = asyncio.create_task(self.outlive())

    async def outlive(self) -> None:
        breakpoint()
        await self.gate(0).wait()
        self.going = False  # @outlived

    @concurrent_endpoint
    async def start_rounds(self) -> None:
        self.task = asyncio.create_task(self.rounds())

    async def rounds(self) -> None:
        count = 0
        while self.going:
            count += 1  # @rounds
            await asyncio.sleep(0.001)

    @concurrent_endpoint
    async def both(self) -> list[int]:
        return list(await asyncio.gather(self.part(1), self.part(2)))

    async def part(self, number: int) -> int:
        breakpoint()
        await self.gate(number).wait()  # @part
        return number  # @parted

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

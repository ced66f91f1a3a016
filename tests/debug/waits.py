"""An actor that waits in further ways until a person lets it go; ``# @name`` marks a line. Ranks import this module."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from typing import Any

from meshrt import Actor, current_rank, endpoint
from tests.debug.callee import twice
from tests.support.markers import marked_line

__all__ = ["AsyncWaits", "Waits", "failing_setup", "line_of", "stopping_setup"]

POLL_MS = 20_000


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


def stopping_setup() -> None:
    place = "set-up"  # noqa: F841
    breakpoint()  # @setup


def failing_setup() -> None:
    device = "gpu9"
    raise OSError(f"no device {device}")  # @no_device


class Waits(Actor):
    """``p worker self.go.set()`` resumes it."""

    def __init__(self) -> None:
        self.rank = current_rank().rank
        self.go = threading.Event()
        self.polls: list[int] = []

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def polled(self) -> int:
        """Wait in the C library, which tells what Python hides: that a signal has cut the call short."""
        poll = ctypes.CDLL(None, use_errno=True).poll
        while not self.go.is_set():
            self.polls.append(poll(None, 0, POLL_MS))  # @poll
        return len(self.polls)

    @endpoint
    def slow(self, ranks: tuple[int, ...]) -> int:
        slow = self.rank in ranks
        breakpoint()  # @slow
        self._wait(slow)  # @step
        return 7  # @stepped

    def _wait(self, slow: bool) -> None:
        if slow:
            self.go.wait()

    @endpoint
    def calls(self, value: int) -> int:
        mine = value + 1
        return twice(mine)  # @calls

    @endpoint
    def fail(self, ranks: tuple[int, ...] = ()) -> int:
        secret = self.rank * 7
        if not ranks or self.rank in ranks:
            raise ValueError(f"rank {self.rank} is bad, {secret}")  # @fail
        return self.rank

    @endpoint
    def stop_and_fail(self) -> None:
        breakpoint()  # @before
        raise ValueError("after the stop")

    @endpoint
    def compute(self, value: int) -> int:
        return value * 2  # @compute

    @endpoint
    def wait(self) -> int:
        self.go.wait()  # @wait
        return self.rank


class AsyncWaits(Actor):
    """The same on an event loop."""

    @endpoint
    async def work(self, number: int) -> Any:
        got = await self.value()
        breakpoint()  # @async
        return got + number

    async def value(self) -> int:
        await asyncio.sleep(0)
        return 5

    @endpoint
    async def ping(self) -> str:
        return "pong"

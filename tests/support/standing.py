"""Actors that stand still in every way there is. Ranks import this module, so it imports no test tools."""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import threading
import time
from itertools import repeat
from pathlib import Path
from typing import Any

from meshrt import Actor, ActorMesh, current_rank, endpoint
from tests.support.markers import marked_line

__all__ = ["AsyncStander", "Stander", "line_of"]


class Stander(Actor):
    """Each endpoint says by a file that it has come to where it stays."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def here(self) -> None:
        (self.directory / f"{type(self).__name__}-{current_rank().rank}").touch()

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def recv(self) -> bytes:
        self.pair = socket.socketpair()
        self.here()
        return self.pair[0].recv(1)  # @recv

    @endpoint
    def lock(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        self.here()
        with lock:  # @lock
            pass

    @endpoint
    def sleep(self) -> None:
        self.here()
        time.sleep(1000)  # @sleep

    @endpoint
    def get_item(self) -> None:
        self.here()
        queue.Queue[int]().get()  # @get

    @endpoint
    def loop(self) -> None:
        self.here()
        while True:  # @loop
            pass

    @endpoint
    def hold_gil(self) -> None:
        self.here()
        sum(repeat(0, 10**11))  # @gil

    @endpoint
    def wait_for(self, other: ActorMesh[Any]) -> None:
        self.here()
        other.recv.call_one().get()  # @call

    @endpoint
    def on_rank(self, names: dict[int, str], otherwise: str) -> None:
        """Run another endpoint's function, by rank."""
        getattr(self, names.get(current_rank().rank, otherwise))()

    @endpoint
    def start_thread(self) -> None:
        def load() -> None:
            self.here()
            threading.Event().wait()  # @thread

        threading.Thread(target=load, name="loader-1", daemon=True).start()

    @endpoint
    def stop_here(self) -> None:
        self.here()
        breakpoint()
        self.here()  # @stopped


class AsyncStander(Stander):
    """The same on an event loop."""

    @endpoint
    async def wait(self) -> None:
        self.task = asyncio.create_task(self.beside(), name="beside")
        await self.deeper()

    async def deeper(self) -> None:
        self.here()
        async for _ in self.items():
            pass

    async def items(self) -> Any:
        await asyncio.Event().wait()  # @await
        yield 1

    async def beside(self) -> None:
        async with asyncio.timeout(1000):
            await asyncio.Event().wait()  # @beside

    @endpoint
    async def block(self) -> None:
        self.here()
        time.sleep(1000)  # noqa: ASYNC251  # @block

    @endpoint
    async def block_in_task(self) -> None:
        async def blocking() -> None:
            self.here()
            time.sleep(1000)  # noqa: ASYNC251  # @task

        await asyncio.create_task(blocking(), name="blocking")  # @awaiting


def line_of(mark: str) -> int:
    """Return the number of the line that ends in ``# @mark``."""
    return marked_line(__file__, mark)

"""Actors whose endpoints call each other, wait and fail. Ranks import this module, so it imports no test tools."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from meshrt import Actor, ActorMesh, concurrent_endpoint, current_rank, endpoint
from meshrt.hooks.table import hooks

__all__ = ["Relay"]


class Relay(Actor):
    """Files say that an endpoint runs, and let it go."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def wait_for(self, name: str) -> None:
        (self.directory / f"{name}.{current_rank().rank}").touch()
        while not (self.directory / name).exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.002)

    @concurrent_endpoint
    async def beside(self, name: str) -> None:
        await asyncio.Event().wait() if name == "ever" else await asyncio.sleep(0)

    @endpoint
    async def ask(self, other: ActorMesh[Any]) -> None:
        await other.leaf.call()

    @endpoint
    async def leaf(self) -> None:
        pass

    @endpoint
    async def fail(self) -> None:
        raise LookupError("on purpose")

    @endpoint
    async def hooked(self) -> int:
        """How many want to be told of endpoints and of what is sent."""
        return len(hooks.endpoint_enter) + len(hooks.endpoint_exit) + len(hooks.message_sent)

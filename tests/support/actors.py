"""Actors that many tests use. Ranks import this module, so it imports no test tools."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from meshrt import Actor, Port, context, current_rank, current_size, endpoint

__all__ = ["AsyncEcho", "Clock", "Echo", "Failing", "Gate", "Journal"]


class Echo(Actor):
    """Answers with what it is sent, and says where it runs."""

    def __init__(self, greeting: str = "hello") -> None:
        self.greeting = greeting

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def greet(self, name: str, *, mark: str = "!") -> str:
        return f"{self.greeting} {name}{mark}"

    @endpoint
    def rank(self) -> int:
        return current_rank().rank

    @endpoint
    def where(self) -> tuple[dict[str, int], dict[str, int], str]:
        return dict(current_rank()), current_size(), context().actor_instance.name

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def apply(self, function: Any, *args: Any) -> Any:
        """Run ``function`` here."""
        return function(*args)

    @endpoint
    def nothing(self) -> None:
        pass

    def plain(self) -> int:
        """A method that is no endpoint."""
        return 1


class AsyncEcho(Actor):
    """Sync and async endpoints in one class."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    @endpoint
    async def echo(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    @endpoint
    def sync_echo(self, value: Any) -> Any:
        return value

    @endpoint
    async def where_in_tasks(self) -> list[tuple[dict[str, int], str]]:
        async def ask() -> tuple[dict[str, int], str]:
            await asyncio.sleep(0)
            return dict(current_rank()), context().actor_instance.name

        return list(await asyncio.gather(ask(), asyncio.create_task(ask())))

    @endpoint
    async def loop_name(self) -> str:
        return type(asyncio.get_running_loop()).__module__

    @endpoint
    async def fail(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("async and wrong")


class Failing(Actor):
    """Raises on the ranks that it is told."""

    def __init__(self, ranks: tuple[int, ...] = ()) -> None:
        if current_rank().rank in ranks:
            raise ValueError(f"rank {current_rank().rank} does not start")

    @endpoint
    def fail(self, ranks: tuple[int, ...] = ()) -> int:
        rank = current_rank().rank
        if not ranks or rank in ranks:
            raise LookupError(f"rank {rank} fails")
        return rank

    @endpoint
    def ok(self) -> str:
        return "ok"


class Gate(Actor):
    """Waits in an endpoint until a file exists: a rank that is busy for as long as the test wants."""

    @endpoint
    def wait_for(self, path: str, ranks: tuple[int, ...] = ()) -> int:
        rank = current_rank().rank
        while (not ranks or rank in ranks) and not os.path.exists(path):
            time.sleep(0.002)
        return rank

    @endpoint
    def ping(self) -> str:
        return "pong"


class Journal(Actor):
    """Notes the order of its messages, and whether two ever ran at once."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.inside = 0
        self.most_inside = 0
        self.lock = threading.Lock()

    @endpoint
    def note(self, entry: Any) -> None:
        with self.lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        self.entries.append(entry)
        os.sched_yield()
        with self.lock:
            self.inside -= 1

    @endpoint
    async def note_async(self, entry: Any) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.entries.append(entry)
        await asyncio.sleep(0)
        self.inside -= 1

    @endpoint
    def read(self) -> tuple[list[Any], int]:
        return self.entries, self.most_inside


class Clock(Actor):
    """Counts its calls."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    @endpoint
    def tick(self) -> int:
        self.count += 1
        return self.count

    @endpoint
    def read(self) -> int:
        return self.count

    @endpoint
    def send(self, port: Port[tuple[int, int, int]], sender: int, numbers: Sequence[int]) -> None:
        """Send ``(sender, rank, number)`` for each number."""
        for number in numbers:
            port.send((sender, current_rank().rank, number))

    @endpoint
    def pid(self) -> int:
        return os.getpid()

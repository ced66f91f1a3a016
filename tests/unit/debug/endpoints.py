"""Endpoints that the tests stop in; ``# @name`` marks a line."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import Any

from tests.support.markers import marked_line


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


def together() -> int:
    sys.breakpointhook(all=True)  # @together
    return 1


def simple(value: int) -> int:
    x = value + 1
    breakpoint()  # @simple
    y = double(x)  # @after
    return y  # @return


def double(x: int) -> int:
    result = x * 2  # @double
    return result


def last_statement() -> None:
    breakpoint()  # @last


def loop() -> int:
    total = 0
    for i in range(4):
        if i == 2:
            breakpoint()
        total += i  # @total
    return total


def fails(secret: str) -> None:
    breakpoint()
    raiser(secret)


def raiser(secret: str) -> None:
    raise ValueError("bad " + secret)  # @raise


def reads() -> str:
    breakpoint()
    return "done"


def asks() -> str:
    return input("your name? ")


def nested_stop() -> int:
    breakpoint()  # @inner
    return 5


def calls_nested() -> int:
    breakpoint()  # @outer
    return nested_stop() + 1


async def inner_wait() -> int:
    await asyncio.sleep(0.01)  # @wait
    value = 3  # @woken
    return value  # @inner_return


async def waits() -> int:
    breakpoint()
    x = await inner_wait()  # @await
    y = x + 1  # @awaited
    return y


async def with_background() -> int:
    seen = []

    async def ticker() -> None:
        while True:
            seen.append(1)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(ticker())
    breakpoint()
    await asyncio.sleep(0.05)  # @background_wait
    task.cancel()  # @background_after
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return len(seen)


def in_thread() -> list[int]:
    results: list[int] = []

    def work() -> None:
        value = 7
        breakpoint()  # @thread
        results.append(value)

    thread = threading.Thread(target=work, name="Worker (1)")
    thread.start()
    breakpoint()  # @main
    thread.join()
    return results


def hot(n: int) -> int:
    breakpoint()
    total = 0
    for i in range(n):
        total += i
    return total


class Thing:
    def __init__(self) -> None:
        self.value = 1
        breakpoint()
        self.value = 2

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def makes_thing() -> Any:
    return Thing().value


def swallowing() -> str:
    try:
        breakpoint()
        x = 1  # noqa: F841
    except ArithmeticError:
        return "arithmetic"
    return "normal"

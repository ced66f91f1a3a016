"""What a contestant has to be able to do, and the work that its actors do.

The methods are coroutines for the sake of the contestants that are native to ``asyncio``: those are
measured inside their own running loop, as their users run them. A blocking contestant writes coroutines
that never suspend; :func:`run_blocking` drives them without any loop, at about 0.1 us a call.
"""

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

__all__ = ["PAGE", "Actors", "Array", "Peer", "announce", "filled", "run_blocking", "touch"]

T = TypeVar("T")

PAGE = 4096

Array: TypeAlias = Any
"""A one-dimensional ``numpy.ndarray`` of ``uint8``; numpy is loaded by the payload rows only."""


def filled(size: int) -> Array:
    """Return an array of ``size`` bytes, all of them 1, whose pages are in memory."""
    import numpy  # keeps numpy out of the rows that measure start-up and memory

    return numpy.ones(size, dtype=numpy.uint8)


def touch(array: Array) -> int:
    """Read one byte of each page and return the sum, so that no transport can deliver lazily."""
    return int(array[::PAGE].sum())


def announce(started: str) -> None:
    """Create the file by which an actor says that it is inside its method."""
    Path(started).touch()


class Actors(Protocol):
    """``N`` running actors, each in a process of its own. "One" is the actor of rank 0."""

    async def pids(self) -> list[int]:
        """Return the process ids of the actors, by rank."""

    async def call_one(self) -> None:
        """Call an empty method of one actor and wait for its answer."""

    async def call_all(self) -> int:
        """Call an empty method of all actors, wait for all, and return how many answered."""

    async def pipeline_one(self, calls: int) -> None:
        """Make ``calls`` calls to one actor before waiting for any answer, then wait for all."""

    async def pipeline_all(self, calls: int) -> None:
        """The same with ``calls`` calls of all actors, that is ``N * calls`` calls of an actor."""

    async def put_one(self, array: Array) -> int:
        """Send an array to one actor, which returns :func:`touch` of it."""

    async def put_all(self, array: Array) -> list[int]:
        """Send the same array to all actors; each returns :func:`touch` of it."""

    async def get_one(self, size: int) -> Array:
        """Let one actor return an array of ``size`` bytes, which it made at the first such call."""

    async def back_one(self, array: Array) -> Array:
        """Send an array to one actor, which reads it as :func:`touch` does and returns it."""

    async def block(self, rank: int, started: str) -> None:
        """Call a method that creates the file ``started`` and then sleeps for a minute.

        Raises:
            Exception: The contestant's own error for an actor whose process died during a call.
        """

    async def stop(self) -> None:
        """End all actors and every process that was started for them."""


def run_blocking(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        main.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine suspended, but this contestant has no event loop")


class Peer(NamedTuple):
    """A contestant: how to start ``N`` actors, and what drives its coroutines."""

    start: Callable[[int], Awaitable[Actors]]
    run: Callable[[Coroutine[Any, Any, Any]], Any] = run_blocking

"""The set-up function of a mesh: once in each process, before the first actor is built."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

__all__ = ["SetUp"]


class SetUp:
    """What one process has done of it. Threads of actors: one runs it, the others wait.

    A function that fails runs again for the next actor.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False

    def run(self, function: Callable[[], object]) -> None:
        """Run it on a thread without an event loop; what it returns to be awaited is awaited on a loop of its own."""
        with self._once() as due:
            awaited = function() if due else None
            if inspect.isawaitable(awaited):
                import asyncio  # start-up: few functions are async

                asyncio.run(_value(awaited))

    async def run_async(self, function: Callable[[], object]) -> None:
        """Run it on the loop of the actor, which is blocked while another actor runs it: no message comes before."""
        with self._once() as due:
            awaited = function() if due else None
            if inspect.isawaitable(awaited):
                await awaited

    @contextmanager
    def _once(self) -> Iterator[bool]:
        try:
            with self._lock:
                yield not self._done
                self._done = True
        except BaseException as error:
            error.add_note("raised by the setup function of the mesh, before the actor was built")
            raise


async def _value(awaited: Awaitable[object]) -> object:
    return await awaited

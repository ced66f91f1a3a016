"""Actors on threads whose time a test sets (`meshrt.testing.clock`), and of which it can tell whether they wait.

An actor is *quiet* if it waits for messages, for timers or for the answers of calls, and nothing has come.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import select
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor as Threads
from contextvars import Context
from typing import Protocol

from meshrt.actor.callers import Callers
from meshrt.actor.execute import Executor
from meshrt.actor.mailbox import Mailbox

__all__ = ["ClockedLoop", "ClockedMailbox", "Time", "is_readable"]


class Time(Protocol):
    """The clock, as loops read it. Any thread."""

    #: It is set by a test no longer: time passes.
    released: bool

    def time(self) -> float:
        """Return its time, seconds."""


def is_readable(descriptor: int) -> bool:
    """Whether a descriptor has something to read; False if it is closed."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


class _Callers(Callers):
    """Knows when its thread waits for messages."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = False
        self.rounds = 0

    def collect(self, timeout: float | None) -> bool:
        if timeout is not None:
            return super().collect(timeout)
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        # What has come is read only when this says that it waits no more: so it is never both unseen and unserved.
        self.waits = True
        poll.poll()
        self.waits = False
        self.rounds += 1
        return super().collect(0)


class _Selector(selectors.EpollSelector):
    """Waits for descriptors alone, and for no time."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time = time
        self.waits = False
        self.rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._time.released or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        self.waits = True
        ready = super().select(None)  # what is readable stays so until it is read, behind this
        self.waits = False
        self.rounds += 1
        return ready


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a clock."""

    def __init__(self, time: Time) -> None:
        self._clock = time
        self._waiting = _Selector(time)
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._in_threads: set[asyncio.Future[object]] = set()
        super().__init__(self._waiting)

    def time(self) -> float:
        """Return the time of the clock."""
        return self._clock.time()

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio; ``call_later`` calls it, too."""
        timer = super().call_at(when, callback, *args, context=context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def run_in_executor(  # type: ignore[override]  # types of the arguments are of no interest here
        self, executor: Threads | None, func: Callable[..., object], *args: object
    ) -> asyncio.Future[object]:
        """See asyncio; what runs in a thread is at work."""
        future = super().run_in_executor(executor, func, *args)
        self._in_threads.add(future)
        future.add_done_callback(self._in_threads.discard)
        return future

    def due(self) -> float | None:
        """Return when its next timer is due; None: it has none. While it is quiet."""
        while self._timers and (self._timers[0][2].cancelled() or self._timers[0][0] <= self.time()):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def rounds(self) -> int:
        """How often it has waited."""
        return self._waiting.rounds

    def is_quiet(self) -> bool:
        """Whether it waits, and nothing has come. Another thread."""
        return self._waiting.waits and not self._in_threads and not is_readable(self._waiting.fileno())

    def wake(self) -> None:
        """Have it look at its timers. Another thread."""
        if not self.is_closed():
            self.call_soon_threadsafe(int)


class ClockedMailbox(Mailbox):
    """A mailbox whose event loop has the time of a clock.

    Args:
        time: The clock.
    """

    def __init__(self, time: Time, executor: Executor, exiting: Callable[[Executor, BaseException], None]) -> None:
        self._counted = _Callers()
        super().__init__(executor, exiting, self._counted)
        self._time = time
        self.clocked: ClockedLoop | None = None
        self._served_by: threading.Thread | None = None

    def serve(self) -> None:
        """See `Mailbox`."""
        self._served_by = threading.current_thread()
        super().serve()

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        self.clocked = ClockedLoop(self._time)
        return self.clocked

    @property
    def rounds(self) -> int:
        """How often it has waited, and the calls that it has begun."""
        return self._counted.rounds + self.calls + (0 if self.clocked is None else self.clocked.rounds)

    @property
    def has_ended(self) -> bool:
        """Whether it serves no more."""
        return self.executor.state == "ended"

    def is_quiet(self, is_waiting: Callable[[int], bool]) -> bool:
        """Whether its actor waits, and nothing has come. Another thread.

        Args:
            is_waiting: Whether a thread waits for the answers of a call.
        """
        if self.has_ended:  # its thread hands over what is left, such as the STOP that is to be answered
            return self._served_by is None or not self._served_by.is_alive()
        thread = self.thread
        if thread is None:
            return False
        if is_waiting(thread):
            return True
        if self._loop is not None and self.clocked is not None:
            return self.clocked.is_quiet()
        return self._counted.waits and not is_readable(self.callers.fileno())

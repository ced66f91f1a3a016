"""Something that becomes done once; threads, event loops and callbacks wait for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol

from meshrt.hooks.facts import Wait

__all__ = ["Finishing", "Pending"]


class _Driver(Protocol):
    """What of the driver is told that something is done (`meshrt.transport.waiting.Waiting`)."""

    @property
    def callback_lock(self) -> AbstractContextManager[object]:
        """Held while callbacks are added or taken."""

    @property
    def followers(self) -> Collection[object]:
        """One for each thread that waits while another one reads."""

    def wake_followers(self) -> None:
        """Have them look again."""

    def run_later(self, callbacks: list[Callable[[], None]]) -> None:
        """Run callbacks on a thread that may run them."""

    def background(self, reason: object, wanted: bool) -> None:
        """Have the links read although no thread waits, or no longer."""


class Finishing(Protocol):
    """What a thread may wait for through the driver."""

    @property
    def finished(self) -> bool:
        """Whether it is done."""


class Pending:
    """Something that becomes done once; threads and event loops may wait for it through the driver."""

    __slots__ = ("_callbacks", "_driver", "finished")

    def __init__(self, driver: _Driver) -> None:
        self._driver = driver
        self._callbacks: list[Callable[[], None]] | None = None
        self.finished: bool = False

    def finish(self) -> None:
        """Mark it done and wake the threads that wait. Any thread; the second time is a no-op."""
        if self.finished:
            return
        self.finished = True
        driver = self._driver
        if driver.followers:
            driver.wake_followers()
        if self._callbacks is not None:
            with driver.callback_lock:
                callbacks, self._callbacks = self._callbacks, None
            driver.run_later(callbacks)
            driver.background(self, False)

    #: Whether a wait for it may be told of something else that has failed: it is a call of the program's.
    disturbable = False

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether it will fail by itself if this rank has ended."""
        return False

    def awaited(self) -> Wait | None:
        """Return the call that it is an answer to, and the ranks that have not answered. Any thread.

        Returns:
            None: It is no answer to a call, or it is done.
        """
        return None

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not run a callback that was given to `when_done`; a no-op if it has run. Any thread."""
        with self._driver.callback_lock:
            if self._callbacks is not None and callback in self._callbacks:
                self._callbacks.remove(callback)

    def when_done(self, callback: Callable[[], None], *, background: bool) -> None:
        """Run ``callback`` when done, on the thread that completes it (at once if done already).

        Args:
            background: Have the links read although no thread waits.
        """
        driver = self._driver
        with driver.callback_lock:
            if not self.finished:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                if background:
                    driver.background(self, True)
                return
        callback()

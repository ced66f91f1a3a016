"""The thread of a connection to another program: timers, and its links while no thread waits for answers there."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
from collections.abc import Callable
from typing import Protocol

from meshrt.transport.threads import RuntimeThread
from meshrt.transport.timers import Timers

__all__ = ["BackgroundThread"]


class _Driver(Protocol):
    """What is served (`meshrt.transport.driver.Driver`)."""

    def fileno(self) -> int: ...
    def poll_nowait(self) -> None: ...


class BackgroundThread:
    """Any thread, unless said otherwise."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._driver: _Driver | None = None
        self._wanted = self._closing = False
        self._thread = RuntimeThread(target=self._run, name="meshrt-connection", daemon=True)

    def start(self, driver: _Driver) -> None:
        """Begin."""
        self._driver = driver
        self._thread.start()

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call ``function`` on this thread after ``seconds``."""
        self._timers.add(seconds, function)
        self._wake()

    def switch(self, on: bool) -> None:
        """Read the links here, or no longer."""
        self._wanted = on
        self._wake()

    def close(self) -> None:
        """End the thread, and wait for that."""
        self._closing = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptor; in a forked child, where the thread does not exist."""
        wake_fd, self._wake_fd = self._wake_fd, -1
        if wake_fd >= 0:
            os.close(wake_fd)

    def _wake(self) -> None:
        if self._wake_fd >= 0:
            with contextlib.suppress(BlockingIOError, OSError):  # closed at this moment: nothing is left to do
                os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        driver = self._driver
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_fd, selectors.EVENT_READ)
            drives = False
            while not self._closing and driver is not None:
                if drives != self._wanted:
                    drives = self._wanted
                    if drives:
                        selector.register(driver.fileno(), selectors.EVENT_READ)
                    else:
                        selector.unregister(driver.fileno())
                for key, _ in selector.select(self._timers.wait()):
                    if key.fd == self._wake_fd:
                        with contextlib.suppress(BlockingIOError):
                            os.eventfd_read(self._wake_fd)
                    else:
                        _guarded(driver.poll_nowait)
                for function in self._timers.due():
                    _guarded(function)


def _guarded(function: Callable[[], object]) -> None:
    try:
        function()
    except Exception:
        # What one call causes must not end the thread that serves the others.
        logging.getLogger("meshrt").exception("the connection to another program")

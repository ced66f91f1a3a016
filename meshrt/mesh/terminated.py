"""SIGTERM while the script's main thread waits for ranks: where they are is written down before the program ends by it.

A handler of Python's runs on the main thread, between two instructions: a script that is in C code would not end by
SIGTERM for as long as that takes. So the handler is in place only while the main thread has waited in a ``get()`` for a
second or longer, where it runs at once, or while a task of its event loop has awaited so long; other callbacks of the
loop then have some time to return to it. The handler replaces the default only, never one of the program, and is not
used where the main thread blocks the signal.

::

    default -> in place      the main thread waits for a second             (asked for by the root's loop)
    in place -> default      a wait has ended, or SIGTERM has come: the next one ends the process at once
    SIGTERM -> report        between two looks of the wait at its links, or two callbacks of the event loop; then the
                             process sends SIGTERM to itself, as it does if no report has begun by `_PATIENCE`
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshrt.transport.pending import Pending
from meshrt.transport.waiting import Waiting

if TYPE_CHECKING:
    import asyncio

__all__ = ["Terminated"]

#: Seconds between two looks, and those that a wait lasts before the handler is in place.
_INTERVAL = 1.0
#: Seconds that an event loop has to come to the report.
_PATIENCE = 2.0


class Terminated:
    """The handler of SIGTERM of one program.

    Args:
        driver: The main thread waits there.
        report: Writes down where ranks are, and says so; on the main thread. It is given the task that awaits, and
            what it awaits; None twice: the thread itself waits.
    """

    def __init__(self, driver: Waiting, report: Callable[[asyncio.Task[object] | None, Pending | None], None]) -> None:
        self._driver = driver
        self._report = report
        self._pid = os.getpid()
        self._main = threading.main_thread().ident
        self._in_place = False
        self._received = False
        self._reports = False
        self._loop: asyncio.AbstractEventLoop

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to check how long the main thread waits. On the root's loop."""
        self._loop = loop
        loop.call_later(_INTERVAL, self._look)

    def _look(self) -> None:
        self._loop.call_later(_INTERVAL, self._look)
        if self._main is not None and not self._in_place:
            long_ago = time.monotonic() - _INTERVAL
            since = self._driver.waits.since(self._main)
            if since is not None and since <= long_ago:
                self._driver.interject(self._install)
            elif since is None and (found := self._longest_await()) is not None and found[2] <= long_ago:
                self._on_loop_of(found[0], self._install_for_await)

    def _longest_await(self) -> tuple[asyncio.Task[object], Pending, float] | None:
        return self._driver.waits.longest_await(self._driver.main_loop)

    @staticmethod
    def _on_loop_of(task: asyncio.Task[object], function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # it has been closed
            task.get_loop().call_soon_threadsafe(function)

    # -- on the main thread

    def _install_for_await(self) -> None:
        if self._longest_await() is not None:
            self._install()

    def _install(self, _pending: object = None) -> None:
        # Where this thread blocks it, another one would get it, and nothing would wake this one for the handler.
        blocked = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        if not self._in_place and not blocked and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._in_place = True
            self._driver.wait_ended = self._uninstall
            signal.signal(signal.SIGTERM, self._on_signal)

    def _uninstall(self) -> None:
        """A wait of any thread or task has ended."""
        if threading.get_ident() != self._main or not self._in_place:
            return
        found = self._longest_await()
        if found is not None and found[2] <= time.monotonic() - _INTERVAL:
            return  # another task still awaits
        self._in_place = False
        self._driver.wait_ended = None
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._received:
            self._end()  # it came as the wait ended: there is nothing to report

    def _on_signal(self, _number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._received = True
        if os.getpid() != self._pid:
            self._end()
        elif self._driver.interject(lambda _pending: self._report_and_end(None, None)):
            return
        elif (found := self._longest_await()) is not None:
            task, awaited, _ = found
            self._on_loop_of(task, lambda: self._report_and_end(task, awaited))
            with contextlib.suppress(RuntimeError):  # the root's has been closed
                self._loop.call_soon_threadsafe(self._loop.call_later, _PATIENCE, self._end_if_late)
        else:
            self._end()

    def _report_and_end(self, task: asyncio.Task[object] | None, awaited: Pending | None) -> None:
        self._reports = True
        try:
            self._report(task, awaited)
        finally:
            self._end()

    def _end_if_late(self) -> None:
        if not self._reports:
            self._end()

    @staticmethod
    def _end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

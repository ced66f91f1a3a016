"""Ctrl-C that never cuts a frame in two.

Python raises KeyboardInterrupt between any two bytecodes of the main thread: also between reading bytes from a socket
and storing them, which would lose an answer. While the shield is closed the interrupt is remembered; it is raised when
the shield opens. The handler is installed only in place of Python's own, never over a user's.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from threading import get_ident
from types import FrameType

__all__ = ["Shield"]


class Shield:
    """Call `close` before a section and `open` after it, nested if need be; all methods are no-ops off the main thread.

    Args:
        wake: Called in the signal handler when an interrupt arrives in a section: ends a wait that asks `check` then.
    """

    __slots__ = ("_depth", "_main", "_wake", "pending")

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._main = threading.main_thread().ident
        self._depth = 0
        self._wake = wake
        #: An interrupt has arrived in the section.
        self.pending = False

    def install(self) -> None:
        """Take over SIGINT if Python's default handler is in place and this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_interrupt)

    def uninstall(self) -> None:
        """Give SIGINT back."""
        if get_ident() == self._main and signal.getsignal(signal.SIGINT) == self._on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self.pending = True
            self._wake()
        else:
            signal.default_int_handler(number, frame)

    def close(self) -> None:
        """Begin a section that Ctrl-C does not cut."""
        if get_ident() == self._main:
            self._depth += 1

    def open(self) -> None:
        """End the section; the end of the outermost one raises the KeyboardInterrupt that arrived meanwhile."""
        if get_ident() == self._main:
            self._depth -= 1
            if self.pending and not self._depth:
                self.pending = False
                raise KeyboardInterrupt

    def check(self) -> None:
        """Raise the KeyboardInterrupt that has arrived, here and now."""
        if self.pending and get_ident() == self._main:
            self.pending = False
            raise KeyboardInterrupt

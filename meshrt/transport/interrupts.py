"""Ctrl-C that never cuts a frame in two.

Python raises KeyboardInterrupt between any two bytecodes of the main thread: also between reading bytes from a socket
and storing them, which would lose an answer. While the shield is closed the interrupt is remembered; it is raised when
the shield opens. The handler is installed only in place of Python's own, never over a user's.

Python prints and drops an exception in a finalizer, or in another function that Python calls by itself. There the
signal is sent once more instead, until it arrives while the main thread is elsewhere. If no thread can be started to
send it, the interrupt is remembered, and raised by the next section.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType
from typing import TypeVar

__all__ = ["Shield", "called_by_python", "follows_from_interrupt", "installed"]

F = TypeVar("F", bound=Callable[..., object])

#: Functions whose exceptions Python prints and drops, and that call nothing that could wait.
_ignored: set[CodeType] = set()
#: The same of the standard library, as far as nothing else has been called from there: callbacks of weak references.
_WEAK = {weakref.finalize.__call__.__code__.co_filename, weakref.WeakSet.add.__code__.co_filename}


def called_by_python(function: F) -> F:
    """Mark a finalizer, or another function whose exceptions Python does not pass on; it must not wait."""
    _ignored.add(function.__code__)
    return function


def _is_ignored(frame: FrameType | None) -> bool:
    """Whether Python would drop an exception that is raised there."""
    if frame is not None and frame.f_code.co_filename in _WEAK:
        return True
    while frame is not None and frame.f_code not in _ignored:
        frame = frame.f_back
    return frame is not None


def follows_from_interrupt(error: BaseException) -> bool:
    """Whether the cancellation of what is awaited follows from Ctrl-C. Main thread.

    Either a KeyboardInterrupt leaves an event loop, whose tasks are cancelled meanwhile, or asyncio has taken over the
    signal and cancels the main task: the exception tells nothing then, but `asyncio.Runner` counts signals.
    """
    each: BaseException | None = error
    seen: set[int] = set()
    while each is not None and id(each) not in seen:
        if isinstance(each, KeyboardInterrupt):
            return True
        seen.add(id(each))
        each = each.__context__
    runner = getattr(getattr(signal.getsignal(signal.SIGINT), "func", None), "__self__", None)
    return type(runner).__module__ == "asyncio.runners" and bool(getattr(runner, "_interrupt_count", 0))


class Shield:
    """Call `close` before a section and `open` after it, or use ``with``; it nests. No-ops off the main thread.

    Args:
        wake: Called in the signal handler when an interrupt arrives in a section: ends a wait that asks `check` then.
    """

    __slots__ = ("_depth", "_main", "_wake", "pending")

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._main = threading.main_thread().ident
        self._depth = 0
        self._wake = wake
        #: An interrupt has arrived in the section, or where it could not be raised.
        self.pending: bool = False

    def install(self) -> None:
        """Take over SIGINT if Python's default handler is in place and this is the main thread.

        A shield that was uninstalled on another thread has left its own, which does what the default one does.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if handler is signal.default_int_handler or isinstance(getattr(handler, "__self__", None), Shield):
            signal.signal(signal.SIGINT, self._on_interrupt)
            _in_place[:] = [self]

    def take_part(self) -> None:
        """Be respected by the handler that is in place now or later: this one, if there is none."""
        if installed() is _none:
            self.install()
        _others.append(self)

    def leave(self) -> None:
        """Undo `take_part`. Any thread."""
        if self in _others:
            _others.remove(self)
            self.uninstall()

    def uninstall(self) -> None:
        """Give SIGINT back."""
        if get_ident() == self._main and signal.getsignal(signal.SIGINT) == self._on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _in_place.clear()

    def _on_interrupt(self, _number: int, frame: FrameType | None) -> None:
        for shield in (self, *_others):
            if shield._depth:
                shield.pending = True
                shield._wake()
                return
        self._interrupt(frame)

    def _interrupt(self, frame: FrameType | None) -> None:
        self.pending = False
        if not _is_ignored(frame):
            raise KeyboardInterrupt
        # By a thread, which runs a little later: here it would be handled at once. Not one of `threading`, whose
        # locks this thread may hold.
        try:
            _thread.start_new_thread(signal.pthread_kill, (get_ident(), signal.SIGINT))
        except RuntimeError:
            self.pending = True  # there is none to be had: raised where the next section begins to wait, or ends

    def close(self) -> None:
        """Begin a section that Ctrl-C does not cut."""
        if get_ident() == self._main:
            self._depth += 1

    def open(self) -> None:
        """End the section; the end of the outermost one raises the KeyboardInterrupt that is pending."""
        if get_ident() == self._main:
            self._depth -= 1
            if self.pending and not self._depth:
                self._interrupt(sys._getframe())

    def __enter__(self) -> None:
        self.close()

    def __exit__(self, *_error: object) -> None:
        self.open()

    def check(self) -> None:
        """Raise the KeyboardInterrupt that is pending, here and now."""
        if self.pending and get_ident() == self._main:
            self._interrupt(sys._getframe())


_in_place: list[Shield] = []
#: Those of connections to other programs.
_others: list[Shield] = []
_none = Shield()


def installed() -> Shield:
    """Return the shield whose handler is in place; one that shields from nothing if there is none."""
    return _in_place[0] if _in_place else _none

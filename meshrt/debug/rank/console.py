"""The standard streams of a session: what is printed at its prompt is collected, a read waits for the user's line.

``sys.stdout``, ``sys.stderr`` and ``sys.stdin`` belong to the whole process, and several threads of a rank can be
stopped at once. So while a user works at a prompt, they are stand-ins that look up the thread that prints. A thread at
a prompt gets its own console. Every other thread gets the stream that was there before, with all its features. No other
part of the debugger replaces these streams (pdb by itself would): a thread of the user's may do so at the same time.
"""

from __future__ import annotations

import bdb
import collections
import contextlib
import io
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from meshrt.debug.rank.stand_in import StandIn, unwrapped
from meshrt.inspect.capping import left_out
from meshrt.inspect.values import PASSED_ON

__all__ = [
    "DEBUGGERS_OWN",
    "Console",
    "Released",
    "Stream",
    "catch_streams",
    "displayed",
    "routed",
    "standard_in",
    "standard_out",
]


class Stream(Protocol):
    """Where the standard streams of one thread lead."""

    def write(self, text: str, /) -> int: ...

    def readline(self) -> str: ...


_active: dict[int, Stream] = {}
_lock = threading.Lock()
#: The stand-ins in use since the first of these threads came.
_stand_ins: list[StandIn] = []
_hooks: dict[int, Callable[[object], None]] = {}
_hook_before: Callable[[object], None] = sys.displayhook


class Released(BaseException):
    """Ends everything that runs at a prompt: the user resumed the rank, or the mesh is being stopped (``closing``)."""

    def __init__(self, *, closing: bool) -> None:
        super().__init__("the mesh is stopped" if closing else "resumed")
        self.closing = closing


#: Exceptions that may leave a prompt; all others are shown there.
DEBUGGERS_OWN = (Released, bdb.BdbQuit)
PASSED_ON.extend(DEBUGGERS_OWN)


class Console:
    """The output and the input lines of one stopped thread.

    Args:
        prompted: Called on the stopped thread with (text, prompt) when a line is wanted.
        printed: Called on the stopped thread with a part of a long-running command's text.
    """

    #: Text of a command that goes on printing is sent after this many seconds,
    FLUSH_SECONDS = 0.2
    #: ... or when it is longer than this many characters.
    FLUSH_CHARACTERS = 100_000
    #: The output of a command that prints more than this is not sent while it runs; only its last text is kept.
    FOLLOW_CHARACTERS = 500_000

    def __init__(self, prompted: Callable[[str, str], None], printed: Callable[[str], None]) -> None:
        self._prompted = prompted
        self._printed = printed
        self._parts: collections.deque[str] = collections.deque()
        self._size = 0
        self._followed = 0
        self._dropped = 0
        self._last_flush = time.monotonic()
        self._unfinished = False
        self._lines: queue.SimpleQueue[str | Released | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        #: The last one that is to be raised, and the one that is being raised.
        self._requested: Released | None = None
        self._released: Released | None = None
        #: The prompt has to end as soon as the code that runs at it can be ended.
        self.released = False
        #: Ends code that runs at the prompt without reading, as far as possible; called by any thread.
        self.cancel: Callable[[], None] | None = None

    def write(self, text: str) -> int:
        """Keep ``text`` until the next prompt; the text of a long-running command is sent from time to time."""
        self._parts.append(text)
        self._size += len(text)
        self._unfinished = not text.endswith("\n") if text else self._unfinished
        if self._followed > self.FOLLOW_CHARACTERS:
            while self._size - len(self._parts[0]) > self.FLUSH_CHARACTERS:
                self._dropped += len(self._parts[0])
                self._size -= len(self._parts.popleft())
        elif self._size > self.FLUSH_CHARACTERS or (
            "\n" in text and time.monotonic() - self._last_flush > self.FLUSH_SECONDS
        ):
            self._followed += self._size
            self._printed(self.take())
        return len(text)

    def end_line(self) -> None:
        """End a line that was begun: what follows is not a part of it."""
        if self._unfinished:
            self.write("\n")

    def take(self) -> str:
        """Return the text that was written since the last call, with a note of what was left out."""
        text = (left_out(self._dropped) if self._dropped else "") + "".join(self._parts)
        self._parts.clear()
        self._size = self._dropped = 0
        self._last_flush = time.monotonic()
        return text

    def readline(self) -> str:
        """Announce that a line is wanted, and wait for it. "": end of the input.

        Raises:
            Released: The prompt has to end.
        """
        if self._requested is not None and self._lines.empty():
            self._released = self._requested  # KeyboardInterrupt came as it was taken from there
        if self._released is None:
            text, newline, prompt = self.take().rpartition("\n")
            self._prompted(text + newline, prompt)
            while isinstance(item := self._lines.get(), Released) and item is not self._requested:
                pass  # it was carried out, or another one came behind it
            if isinstance(item, Released):
                self._released = item
            else:
                self._last_flush = time.monotonic()
                self._followed = 0
                self._unfinished = False
                return "" if item is None else item + "\n"
        raise self._released

    def feed(self, line: str | None) -> None:
        """Supply a line (None: end of the input). Any thread."""
        self._lines.put(line)

    def release(self, *, closing: bool) -> None:
        """End the prompt and everything that runs in it, at any depth. Any thread."""
        self.released = True
        with self._lock:
            before = self._requested
            self._requested = Released(closing=closing or (before is not None and before.closing))
            self._lines.put(self._requested)
        cancel = self.cancel
        if cancel is not None:
            cancel()

    def rearm(self) -> None:
        """Prepare for the next stop, after a release was carried out."""
        if self._released is self._requested:
            self.released, self._requested = False, None
        self._released = None


@contextlib.contextmanager
def routed(stream: Stream) -> Iterator[None]:
    """Connect the standard streams of this thread to ``stream``."""
    ident = threading.get_ident()
    with _lock:
        outer = _active.get(ident)
        _active[ident] = stream
    try:
        catch_streams()
        yield
    finally:
        with _lock:
            if outer is not None:
                _active[ident] = outer
            else:
                _active.pop(ident, None)
            if not _active:
                _put_back()


def catch_streams() -> None:
    """Connect the standard streams of this thread again, even if user code has replaced them."""
    with _lock:
        for name, here in _STREAMS:
            current = getattr(sys, name, None)
            if type(current) is not StandIn or current not in _stand_ins:
                stand_in = StandIn(_active, here, unwrapped(current))
                _stand_ins.append(stand_in)
                setattr(sys, name, stand_in)


def _put_back() -> None:
    global _active
    _active = {}  # the old one stays empty: a stand-in that is still in use leads to the streams of before
    _stand_ins.clear()
    for name, _ in _STREAMS:
        current = getattr(sys, name, None)
        if type(current) is StandIn:
            setattr(sys, name, unwrapped(current))


@contextlib.contextmanager
def displayed(hook: Callable[[object], None]) -> Iterator[None]:
    """Show the values of the expression statements that this thread runs with ``hook``."""
    global _hook_before
    ident = threading.get_ident()
    with _lock:
        if sys.displayhook is not _display:
            _hook_before, sys.displayhook = sys.displayhook, _display
        outer = _hooks.get(ident)
        _hooks[ident] = hook
    try:
        yield
    finally:
        with _lock:
            if outer is not None:
                _hooks[ident] = outer
            else:
                _hooks.pop(ident, None)
            if not _hooks and sys.displayhook is _display:
                sys.displayhook = _hook_before


def _display(value: object, /) -> None:
    _hooks.get(threading.get_ident(), _hook_before)(value)


def _stream_here() -> Stream | None:
    return _active.get(threading.get_ident())


class _Standard(io.TextIOBase):
    """A standard stream of the thread that uses it, while it is at a prompt."""

    encoding = "utf-8"
    errors = "strict"
    mode = "w"
    line_buffering = True
    write_through = True

    def __init__(self, name: str) -> None:
        self.name = f"<{name}>"

    def reconfigure(self, **options: object) -> None:
        """Accept all options; there is nothing to set."""

    def close(self) -> None:
        """Stay open, also after ``exit()`` at an ``interact`` prompt: the process has only one of these streams."""


class _StandardOut(_Standard):
    """Standard output or error."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        here = _stream_here()
        if here is not None:
            return here.write(text)
        return sys.__stdout__.write(text) if sys.__stdout__ is not None else len(text)

    @property
    def buffer(self) -> io.BufferedIOBase:
        return _Bytes(self)


class _StandardIn(_Standard):
    """Standard input."""

    mode = "r"

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # text, not bytes
        here = _stream_here()
        if here is not None:
            return here.readline()
        return sys.__stdin__.readline() if sys.__stdin__ is not None else ""

    def read(self, size: int | None = -1, /) -> str:
        return self.readline()

    @property
    def buffer(self) -> io.BufferedIOBase:
        return _Bytes(self)


class _Bytes(io.BufferedIOBase):
    """A standard stream of a thread at a prompt, as bytes."""

    def __init__(self, text: _Standard) -> None:
        self._text = text
        self.raw = self

    def readable(self) -> bool:
        return self._text.readable()

    def writable(self) -> bool:
        return self._text.writable()

    def write(self, data: Any, /) -> int:
        self._text.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        return self.readline()

    def readline(self, size: int | None = -1, /) -> bytes:
        return str(self._text.readline()).encode()


standard_out = _StandardOut("stdout")
standard_in = _StandardIn("stdin")
_STREAMS: tuple[tuple[str, _Standard], ...] = (
    ("stdout", standard_out),
    ("stderr", _StandardOut("stderr")),
    ("stdin", standard_in),
)

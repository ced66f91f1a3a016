"""The standard streams of a session: what is printed at its prompt is gathered, a read waits for a person's line.

``sys.stdout``, ``sys.stderr`` and ``sys.stdin`` belong to the whole process, and several threads of a rank can be
stopped at once. So what is put there while a person works at a prompt are routers, which look up the thread that
prints: a thread at a prompt gets its own console, every other one the stream of before. pdb itself swaps ``sys.stdout``
in and out too; as it is given the router for that, two threads that do so at once leave nothing worse than the router.
"""

from __future__ import annotations

import collections
import contextlib
import io
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from meshrt.debug.protocol import left_out

__all__ = ["Console", "Released", "Stream", "routed", "standard_in", "standard_out"]


class Stream(Protocol):
    """Where the standard streams of one thread lead."""

    def write(self, text: str, /) -> int: ...

    def readline(self) -> str: ...


_active: dict[int, Stream] = {}
_lock = threading.Lock()
_saved: dict[str, Any] = {}


class Released(BaseException):
    """Ends whatever runs at a prompt: the person let the rank go, or the mesh is being stopped (``closing``)."""

    def __init__(self, *, closing: bool) -> None:
        super().__init__("the mesh is stopped" if closing else "resumed")
        self.closing = closing


class Console:
    """The text that goes out, and the lines that come in, of one stopped thread.

    Args:
        prompted: called on the stopped thread with (text, prompt) when a line is wanted.
        printed: called on the stopped thread with a part of a long-running command's text.
    """

    #: Text of a command that goes on printing is sent after this many seconds.
    FLUSH_SECONDS = 0.2
    #: ... and no more of it than this is kept before.
    FLUSH_CHARACTERS = 100_000
    #: A command that prints more than this is not followed any more; only its last text is kept.
    FOLLOW_CHARACTERS = 500_000

    def __init__(self, prompted: Callable[[str, str], None], printed: Callable[[str], None]) -> None:
        self._prompted = prompted
        self._printed = printed
        self._parts: collections.deque[str] = collections.deque()
        self._size = 0
        self._followed = 0
        self._dropped = 0
        self._last_flush = time.monotonic()
        self._lines: queue.SimpleQueue[str | Released | None] = queue.SimpleQueue()
        self._released: Released | None = None
        #: The prompt is to end, as soon as what runs at it lets it.
        self.released = False
        #: Ends what runs at the prompt without reading, as far as that is possible; called by any thread.
        self.cancel: Callable[[], None] | None = None

    def write(self, text: str) -> int:
        """Keep ``text`` until the next prompt; of a command that goes on for long, send it from time to time."""
        self._parts.append(text)
        self._size += len(text)
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

    def take(self) -> str:
        """Return what was written since the last time."""
        text = (left_out(self._dropped) if self._dropped else "") + "".join(self._parts)
        self._parts.clear()
        self._size = self._dropped = 0
        self._last_flush = time.monotonic()
        return text

    def readline(self) -> str:
        """Say that a line is wanted, and wait for it. An empty text means: end of the input."""
        if self._released is None:
            text, newline, prompt = self.take().rpartition("\n")
            self._prompted(text + newline, prompt)
            item = self._lines.get()
            if isinstance(item, Released):
                self._released = item
            else:
                self._last_flush = time.monotonic()
                self._followed = 0
                return "" if item is None else item + "\n"
        raise self._released

    def feed(self, line: str | None) -> None:
        """Hand in a line (None: end of the input). Any thread."""
        self._lines.put(line)

    def release(self, *, closing: bool) -> None:
        """End the prompt and what runs in it, however deep. Any thread."""
        self.released = True
        self._lines.put(Released(closing=closing))
        cancel = self.cancel
        if cancel is not None:
            cancel()

    def rearm(self) -> None:
        """Be ready for the next stop, after a release was obeyed."""
        self.released = False
        self._released = None


@contextlib.contextmanager
def routed(stream: Stream) -> Iterator[None]:
    """Lead the standard streams of this thread to ``stream``."""
    ident = threading.get_ident()
    with _lock:
        if not _active:
            for name, router in (("stdout", standard_out), ("stderr", standard_out), ("stdin", standard_in)):
                if getattr(sys, name) is not router:
                    _saved[name] = getattr(sys, name)
                    setattr(sys, name, router)
        outer = _active.get(ident)
        _active[ident] = stream
    try:
        yield
    finally:
        with _lock:
            if outer is not None:
                _active[ident] = outer
            else:
                _active.pop(ident, None)
            if not _active:
                for name, saved in _saved.items():
                    if getattr(sys, name) in (standard_out, standard_in):
                        setattr(sys, name, saved)
                _saved.clear()


def _stream_here() -> Stream | None:
    return _active.get(threading.get_ident())


class _StandardOut(io.TextIOBase):
    """Standard output and error: of the thread that prints."""

    encoding = "utf-8"
    errors = "strict"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        here = _stream_here()
        if here is not None:
            return here.write(text)
        stream = _saved.get("stdout") or sys.__stdout__
        return stream.write(text) if stream is not None else len(text)

    def flush(self) -> None:
        stream = _saved.get("stdout") if _stream_here() is None else None
        if stream is not None:
            stream.flush()

    def close(self) -> None:
        """Stay open: the process has only one of this."""


class _StandardIn(io.TextIOBase):
    """Standard input: of the thread that reads."""

    encoding = "utf-8"
    errors = "strict"

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # text, not bytes
        here = _stream_here()
        if here is not None:
            return here.readline()
        stream = _saved.get("stdin") or sys.__stdin__
        return str(stream.readline()) if stream is not None else ""

    def read(self, size: int | None = -1, /) -> str:
        if _stream_here() is not None:
            return self.readline()
        stream = _saved.get("stdin") or sys.__stdin__
        return str(stream.read(-1 if size is None else size)) if stream is not None else ""

    def close(self) -> None:
        """Stay open, whatever ``exit()`` at an ``interact`` prompt does."""


standard_out = _StandardOut()
standard_in = _StandardIn()

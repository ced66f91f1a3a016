"""A progress bar on the script's terminal, below everything that is written there. tqdm draws it.

While it is shown, `sys.stdout` and `sys.stderr` are streams that erase it before a text is written (`_Above`): the
script may write at any time. They go on to work when the bar has ended, for whoever has kept one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

from meshrt.show.streams import is_terminal

__all__ = ["ProgressBar", "real_stream"]


class ProgressBar:
    """A bar on standard error. Any thread.

    Args:
        what: What is counted, behind the numbers.
    """

    def __init__(self, what: str) -> None:
        self._form = f"meshrt: {{n_fmt}}/{{total_fmt}} {what} |{{bar:30}}| {{elapsed}}"
        self._begin = time.monotonic()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        #: It is on the screen. It is not while a line of the script is unfinished there.
        self._visible = self._unfinished = False
        self._err = sys.stderr
        #: Of the script's streams those that are terminals. What goes elsewhere does not meet the bar.
        streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        self._above = {name: _Above(self, stream) for name, stream in streams.items() if is_terminal(stream)}
        for name, above in self._above.items():
            setattr(sys, name, above)

    def update(self, done: int, total: int) -> None:
        """Show that so many of ``total`` are done."""
        from tqdm import tqdm  # start-up: only where many ranks take long

        columns = shutil.get_terminal_size().columns
        elapsed = time.monotonic() - self._begin
        text = tqdm.format_meter(done, total, elapsed, ncols=columns - 1, bar_format=self._form)
        with self._lock:
            if not self._unfinished:
                self._visible = True
                self._draw(text)

    def close(self) -> None:
        """Take it away for good."""
        for name, stream in self._above.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, stream.real)
        with self.away():
            pass

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Context in which it is not on the screen, and nothing else is written there."""
        # In a fork of the script's, whoever holds the lock is the parent's.
        with self._lock if os.getpid() == self._pid else contextlib.nullcontext():
            if self._visible:
                self._visible = False
                self._draw("")
            yield

    def write(self, stream: IO[str], text: str) -> int:
        """Write a text of the script's, above."""
        with self.away():
            written = stream.write(text)
            stream.flush()
            self._unfinished = not text.endswith("\n") if text else self._unfinished
            return written

    def _draw(self, text: str) -> None:
        self._err.write(f"\r{text}\x1b[K")
        self._err.flush()


class _Above:
    """A stream of the script's, whose texts are written above the bar."""

    def __init__(self, bar: ProgressBar, real: IO[str]) -> None:
        self._bar = bar
        self.real = real

    def write(self, text: str) -> int:
        return self._bar.write(self.real, text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


def real_stream(stream: IO[str]) -> IO[str]:
    """Return the stream behind one of `_Above`."""
    return stream.real if isinstance(stream, _Above) else stream

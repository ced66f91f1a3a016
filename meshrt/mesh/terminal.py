"""The program's terminal: output of ranks and the runtime's own lines, whole lines only, from one thread.

All of it contains text of ranks: names, messages, stacks and what they print. Such text is escaped: it can change only
colours of the terminal (`meshrt.escapes`).

A terminal that does not take its text (paused, or slow) must not stop the root: lines wait in memory up to a limit,
beyond it they are counted and left out; the files of the run directory have them all.

Log records of the runtime are among its own lines where the script has set up no logging: Python would print them
without a prefix, and a reader could not tell their origin.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from meshrt.escapes import coloured
from meshrt.selection import counted

__all__ = ["Terminal", "TerminalLog"]

_LIMIT = 8 << 20
_log = logging.getLogger("meshrt")


class Terminal:
    """Writes to ``sys.stdout`` and ``sys.stderr`` as they are at that time. Any thread may call `write`."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._lines: deque[tuple[bool, bool, str]] = deque()
        self._size = 0
        self._dropped = 0
        self._busy = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="meshrt-terminal", daemon=True)
        self._thread.start()

    def write(self, text: str, *, err: bool, acts: bool = False) -> None:
        """Write whole lines: ``text`` ends with a newline.

        Args:
            acts: It may be less than a line, and contain control sequences; no part of it comes from a rank.
        """
        with self._condition:
            if self._size > _LIMIT:
                self._dropped += text.count("\n")
                return
            self._lines.append((err, acts, text))
            self._size += len(text)
            self._condition.notify()

    def announce(self, text: str) -> None:
        """Write a line of the runtime's own, or several."""
        self.write(f"meshrt: {text}\n", err=True)

    def flush(self, timeout: float = 2.0) -> None:
        """Wait until everything is written, at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self._condition:
            while (self._lines or self._busy) and time.monotonic() < deadline:
                self._condition.wait(deadline - time.monotonic())

    def close(self) -> None:
        """Write what is left and end the thread."""
        self.flush()
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._busy = False
                self._condition.notify_all()
                while not self._lines and not self._closed:
                    self._condition.wait()
                if not self._lines:
                    return
                err = self._lines[0][0]
                texts = []
                while self._lines and self._lines[0][0] == err:
                    texts.append(self._lines.popleft()[1:])
                self._size -= sum(len(text) for _, text in texts)
                if self._dropped and not self._lines:
                    left_out = f"{counted(self._dropped, 'line')} left out here: see the files in the run directory"
                    texts.append((False, f"meshrt: {left_out}\n"))
                    self._dropped = 0
                self._busy = True
            self._emit("".join(text if acts else coloured(text) for acts, text in texts), err)

    def _emit(self, text: str, err: bool) -> None:
        # A closed or broken terminal loses the text; the files have it.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream = sys.stderr if err else sys.stdout
            if type(stream) is io.TextIOWrapper and stream.line_buffering:
                # Its buffer holds an unfinished line of the script: a line of ours must not split it.
                _write(stream.fileno(), text.encode(stream.encoding, stream.errors or "strict"))
            else:
                stream.write(text)
                stream.flush()


class TerminalLog(logging.Handler):
    """Writes records of the logger "meshrt" that no other handler would get.

    Args:
        announce: Writes a text of the runtime's own. Any thread.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._announce = announce

    def begin(self) -> None:
        """Take what is logged from now on."""
        _log.addHandler(self)

    def end(self) -> None:
        """Undo `begin`: Python handles the records again."""
        _log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if self._has_another():
            return
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        self._announce(text)

    def _has_another(self) -> bool:
        """Whether the program has configured a handler for these records."""
        logger: logging.Logger | None = _log
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it, also where another process has made the descriptor non-blocking."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])

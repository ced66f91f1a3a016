"""What the ranks print: read from their pipes, kept in files, passed on to the root line by line.

A rank that prints faster than the root reads never waits: the file keeps it (two files of `FILE_MAX` bytes, the older
one is dropped), the terminal gets a line that says how much was left out.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

__all__ = ["FILE_MAX", "LINE_MAX", "MARK", "RankLog", "Stream", "latest_state"]

#: Bytes of one log file; a rank has at most two.
FILE_MAX = 32 << 20
#: A longer line is cut into pieces.
LINE_MAX = 16 << 10
#: Marks a line of another actor than the rank's first one: MARK + actor name + MARK at its start.
MARK = b"\x1e"
_TAIL = 20
#: Seconds after which a line that is written over again and again (a progress bar) is told as it is.
_PROGRESS = 5.0


def latest_state(line: str) -> str:
    """Return what a terminal shows of a line in the end: what stands behind its last carriage return."""
    return next((state for state in reversed(line.split("\r")) if state), "") if "\r" in line else line


class RankLog:
    """The log file of one rank, and its last lines."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._file: int | None = None
        self._size = 0
        self._failed = False
        self.tail: deque[str] = deque(maxlen=_TAIL)

    def write(self, data: bytes) -> None:
        """Append to the file. A full disk costs the log, never the program; it is said once."""
        if self._failed or not data:
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            elif self._size + len(data) > FILE_MAX:
                self.close()
                self._path.replace(self._path.with_suffix(".log.1"))
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                self._size = 0
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            self._size += written
        except OSError as error:
            self._failed = True
            self._warn(f"the output of a rank is not kept any more: {self._path}: {error.strerror}")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Stream:
    """One pipe of a rank: bytes to lines.

    Of a line with carriage returns its latest state is told: at its end, and every `_PROGRESS` seconds before that.
    """

    def __init__(self, fd: int, log: RankLog, *, err: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Since when the line that is being written is written over; 0: it is not.
        self._progress = 0.0
        self.fd = fd
        self.err = err
        self._log = log
        self._partial = b""
        os.set_blocking(fd, False)

    def read(self) -> list[tuple[str, str]] | None:
        """Read once. Returns ``(actor or "", line)`` pairs, or None at the end of the stream."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        if not data:
            return None
        pieces = (self._partial + data).split(b"\n")
        self._partial = pieces.pop()
        while len(self._partial) > LINE_MAX:
            pieces.append(self._partial[:LINE_MAX])
            self._partial = self._partial[LINE_MAX:]
        if self._is_old():
            pieces.append(self._partial)
            self._partial = b""
        return self._lines(pieces)

    def _is_old(self) -> bool:
        """Whether somebody may wait to be told how far a line is that is written over again and again."""
        if b"\r" not in self._partial:
            self._progress = 0.0
            return False
        now = self._clock()
        self._progress = self._progress or now
        if now - self._progress < _PROGRESS:
            return False
        self._progress = now
        return True

    def end(self) -> list[tuple[str, str]]:
        """Return what stands after the last newline, and close the pipe."""
        rest = [self._partial] if self._partial else []
        self._partial = b""
        os.close(self.fd)
        return self._lines(rest)

    def _lines(self, pieces: list[bytes]) -> list[tuple[str, str]]:
        lines = []
        plain = []
        for piece in pieces:
            actor = ""
            if piece.startswith(MARK) and MARK in piece[1:]:
                name, _, piece = piece[1:].partition(MARK)
                actor = name.decode(errors="replace")
            plain.append(piece)
            text = latest_state(piece.decode(errors="replace"))
            lines.append((actor, text))
            self._log.tail.append(text)
        self._log.write(b"".join(piece + b"\n" for piece in plain))
        return lines

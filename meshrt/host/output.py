"""What the ranks print: read from their pipes, kept in files, passed on to the root line by line.

The files have every byte as it was printed, except the marks of actors; only lines of more than `LINE_MAX` bytes are
cut into several. Control sequences are escaped where a line is shown (`meshrt.escapes`).

A rank that prints faster than the root reads never waits: the file keeps the output (two files, the older one is
dropped; their limit: `meshrt.host.logspace`), and the terminal gets a line that says how much was left out.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from meshrt.escapes import latest_state
from meshrt.host.logspace import FILE_MAX, LogSpace
from meshrt.transport.writing import open_private

__all__ = ["LINE_MAX", "MARK", "RECORD_MARK", "LastLines", "Lines", "Log", "RankLog", "Stream", "unmarked"]

#: A longer line is cut into pieces.
LINE_MAX = 16 << 10
#: Marks a line of another actor than the rank's first one: MARK + actor name + MARK at its start.
MARK = b"\x1e"
#: Marks a line that is for the file alone: of a log record, which the script is sent as well.
RECORD_MARK = MARK + b"+" + MARK
#: Such a line. Other text between two marks is not a name, and could be taken for another line.
_MARKED = re.compile(MARK + rb"(\+|[A-Za-z_][A-Za-z0-9_-]{0,63})" + MARK)
#: Characters of the last lines that an error carries.
_TAIL_MAX = 64 << 10
#: Seconds after which the current state of a line that is written over again and again (a progress bar) is sent.
_PROGRESS = 5.0


class LastLines(deque[str]):
    """The last lines that a rank has printed."""

    COUNT: ClassVar[int] = 20

    def __init__(self) -> None:
        super().__init__(maxlen=self.COUNT)

    def short(self) -> tuple[str, ...]:
        """Return the last ones, together at most `_TAIL_MAX` characters."""
        kept: list[str] = []
        left = _TAIL_MAX
        for line in reversed(tuple(self)):
            if left <= 0:
                break
            kept.append(line[-left:])
            left -= len(line)
        return tuple(reversed(kept))


class Log(ABC):
    """Takes what one rank prints, and has its last lines."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._unreadable = False
        self.tail = LastLines()

    @abstractmethod
    def take(self, pieces: Sequence[bytes], err: bool) -> list[tuple[str, str]]:
        """Take lines, without their newlines; returns those that the agent sends to the root: (actor or "", line)."""

    @abstractmethod
    def close(self) -> None:
        """Nothing follows."""

    def unreadable(self, error: OSError) -> None:
        """A pipe could not be read; say so, once."""
        if not self._unreadable:
            self._warn(f"the output of a rank cannot be read: {error.strerror}")
        self._unreadable = True


class RankLog(Log):
    """The log file of one rank, and its last lines."""

    def __init__(self, path: Path, warn: Callable[[str], None], space: LogSpace | None = None) -> None:
        super().__init__(warn)
        self._path = path
        #: None: no others share its room.
        self._space = space or LogSpace(2 * FILE_MAX, warn)
        self._file: int | None = None
        self._size = 0
        self._failed = self._told = False

    def take(self, pieces: Sequence[bytes], err: bool) -> list[tuple[str, str]]:
        """Write lines to the file; see `Log`."""
        lines = unmarked(pieces)
        self.tail.extend(lines.texts)
        self.write(lines.data)
        return lines.shown

    def write(self, data: bytes) -> None:
        """Append to the file. A full disk affects the log, never the program; it is reported once."""
        if self._failed or not data:
            return
        try:
            if self._file is not None and not os.fstat(self._file).st_nlink:
                self.close()  # it was removed: a new one keeps what comes
                self._size = 0
            if self._file is None:
                self._file = open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                self._size = os.fstat(self._file).st_size  # of a rank that was started again
                self._space.opened(self._path, self._size)
            if self._size and self._size + len(data) > self._space.share:
                old = self._path.with_suffix(".log.1")
                os.close(self._file)
                self._file = None
                self._path.replace(old)
                self._space.finished(self._path, old)
                self._file = open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                self._size = 0
                self._space.opened(self._path, 0)
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            self._size += written
            self._space.grow(self._path, written)
        except OSError as error:
            # A directory that was removed is made again by the root.
            self._failed = not isinstance(error, FileNotFoundError)
            if not self._told:
                self._warn(f"the output of a rank is no longer saved: {self._path}: {error.strerror}")
            self._told = True

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._space.finished(self._path, self._path)


class Stream:
    """One pipe of a rank: bytes to lines.

    Of a line with carriage returns the latest state is sent: at its end, and every `_PROGRESS` seconds before that.
    """

    def __init__(self, fd: int, log: Log, *, err: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Since when the line that is being written is written over; 0: it is not.
        self._progress = 0.0
        self.fd = fd
        self.err = err
        self._log = log
        self._partial = b""
        #: Whether the last look has found something.
        self.took = False
        os.set_blocking(fd, False)

    def read(self) -> list[tuple[str, str]] | None:
        """Read once. Returns ``(actor or "", line)`` pairs, or None at the end of the stream."""
        self.took = False
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        except OSError as error:
            self._log.unreadable(error)
            return []  # the pipe is there, and its writer would be ended by SIGPIPE if it were closed
        if not data:
            return None
        self.took = True
        pieces = (self._partial + data).split(b"\n")
        *pieces, self._partial = (part for piece in pieces for part in _parts(piece))
        if self._is_old():
            pieces.append(self._partial)
            self._partial = b""
        return self._log.take(pieces, self.err)

    def _is_old(self) -> bool:
        """Whether the latest state of a line that is written over again and again may be due to be shown."""
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
        """Return the text after the last newline, and close the pipe."""
        rest = [self._partial] if self._partial else []
        self._partial = b""
        os.close(self.fd)
        return self._log.take(rest, self.err)


class Lines(NamedTuple):
    """Lines without their marks.

    Attributes:
        shown: Those for the terminal, as it shows them, each with its actor (or "").
        texts: All of them, as a terminal shows them.
        data: All of them, as a file has them.
    """

    shown: list[tuple[str, str]]
    texts: list[str]
    data: bytes


def unmarked(pieces: Sequence[bytes]) -> Lines:
    """Return what lines with marks are."""
    lines = Lines([], [], b"")
    plain = []
    for piece in pieces:
        actor = ""
        if (marked := _MARKED.match(piece)) is not None:
            actor, piece = marked[1].decode(), piece[marked.end() :]
        plain.append(piece + b"\n")
        text = latest_state(piece.decode(errors="replace"))
        lines.texts.append(text)
        if actor != "+":
            lines.shown.append((actor, text))
    return lines._replace(data=b"".join(plain))


def _parts(line: bytes) -> list[bytes]:
    """Cut a line; the same line in the same way, however it has come."""
    if len(line) <= LINE_MAX:
        return [line]
    return [line[start : start + LINE_MAX] for start in range(0, len(line), LINE_MAX)]

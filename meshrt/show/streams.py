"""The standard streams of a command, writing to them, and waiting while their reader is there."""

from __future__ import annotations

import io
import os
import select
import sys
import time
from typing import IO

__all__ = ["OutputError", "flush_out", "is_terminal", "open_standard_streams", "pause", "write_out"]


class OutputError(Exception):
    """Output cannot be written, for example to a full disk. A pipe that the reader closed gives BrokenPipeError."""


def open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed (``>&-``), which is None in Python.

    Otherwise ``print(file=sys.stderr)`` writes to standard output, and a socket may get descriptor 0, 1 or 2.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the command ends


def write_out(stream: IO[str], text: str) -> None:
    """Write and flush ``text``. Raises OutputError, BrokenPipeError."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror}") from error


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal: none is not, nor one that is closed."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def pause(stream: IO[str], seconds: float) -> None:
    """Wait. A command that follows something waits by this: it may not write for long, and would not see its reader go.

    Raises:
        BrokenPipeError: The reader has closed the pipe, or the terminal is gone; at once, also while it waits.
    """
    try:
        descriptor = stream.fileno()
    except (io.UnsupportedOperation, ValueError):  # not a file, or closed
        time.sleep(seconds)
        return
    poll = select.poll()
    poll.register(descriptor, 0)  # no event but POLLERR and POLLHUP, which are always told
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


def flush_out() -> None:
    """Flush standard output. Raises OutputError, BrokenPipeError."""
    if sys.stdout is not None:
        write_out(sys.stdout, "")

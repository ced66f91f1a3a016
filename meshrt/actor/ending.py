"""The interrupt that ends user code, and the end of processes by user code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn

from meshrt.wire.codec import text_of

__all__ = ["StopInterrupt", "end_forked_child", "exit_code"]


class StopInterrupt(SystemExit):
    """Raised in user code to end it when the rank ends."""


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of an interpreter after ``error``; prints its message."""
    if error is None:
        return 0
    with contextlib.suppress(OSError, ValueError):  # user code may have closed the streams
        if not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif error.code is None or isinstance(error.code, int):
            return error.code or 0
        else:
            print(text_of(error.code), file=sys.stderr)
    return 1


def end_forked_child(error: BaseException | None) -> NoReturn:
    """End a child that user code has forked and that came back, the way an interpreter ends."""
    code = exit_code(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)

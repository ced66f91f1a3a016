"""What ends user code, and processes that user code ends."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn

from meshrt.wire.codec import text_of

__all__ = ["StopInterrupt", "end_forked_child", "exit_code"]


class StopInterrupt(SystemExit):
    """Raised in user code that the end of the rank does not wait for."""


def exit_code(error: BaseException | None) -> int:
    """Return the code with which an interpreter ends after ``error``; prints what it prints then."""
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

"""C code that holds the GIL of a rank until a test lets it go. Ranks import this: it imports no test tools."""

from __future__ import annotations

import ctypes
import os

__all__ = ["hold_gil"]


def hold_gil(fifo: str) -> None:
    """Hold the GIL until somebody writes a byte into ``fifo``."""
    pipe = os.open(fifo, os.O_RDWR)
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)  # @hold
    os.close(pipe)

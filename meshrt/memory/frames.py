"""Which stack frames hold their variables: those that have ended.

An exception that is kept holds the frames of its traceback, and each of these holds the frame that called it. The
variables of a frame that runs, or of a generator, exist whether anything refers to the frame or not.
"""

from __future__ import annotations

from gc import get_referents
from types import FrameType

from meshrt.files import RUNTIME_FILES, STDLIB_FILES

__all__ = ["ended"]

#: Files that run actors and everything else in a process with an event loop: their frames lead to all objects.
_LOOPS = (RUNTIME_FILES, *(f"{STDLIB_FILES}asyncio/{name}.py" for name in ("base_events", "events", "runners")))


def ended(frame: FrameType) -> bool:
    """Whether the collector sees the variables of a frame, and only this frame holds them."""
    code = frame.f_code
    return not code.co_filename.startswith(_LOOPS) and any(each is code for each in get_referents(frame))

"""Which stack frames hold what is in them: those that have ended.

An exception that is kept keeps the frames of its traceback, and each of these the frame that had called it. The
variables of a frame that runs, or of a generator, are there without whoever has the frame.
"""

from __future__ import annotations

from gc import get_referents
from types import FrameType

from meshrt.files import RUNTIME_FILES, STDLIB_FILES

__all__ = ["ended"]

#: What runs actors, and all else in a process that has an event loop: its frames lead to everything.
_LOOPS = (RUNTIME_FILES, *(f"{STDLIB_FILES}asyncio/{name}.py" for name in ("base_events", "events", "runners")))


def ended(frame: FrameType) -> bool:
    """Whether the collector finds in a frame what it holds, and that is nobody else's."""
    code = frame.f_code
    return not code.co_filename.startswith(_LOOPS) and any(each is code for each in get_referents(frame))

"""Which stack frames a person sees and steps through: their own, not those of the runtime.

Three classes of files:

* *hidden*: the meshrt package. Never shown, never stepped into.
* *plumbing*: what carries a call without being the matter (event loops, threads' first functions). Not stepped into,
  and cut off where the stack begins; in the middle of a stack it is shown.
* everything else is the user's.
"""

from __future__ import annotations

import dis
import inspect
import os
import sysconfig
from functools import lru_cache
from types import FrameType
from typing import Any

__all__ = ["bottom_frame", "caller_frame", "is_awaitable", "is_hidden", "is_plumbing", "is_suspension", "visible"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_PLUMBING = tuple(
    _STDLIB + name
    for name in ("asyncio/", "concurrent/", "multiprocessing/", "threading.py", "selectors.py", "contextlib.py",
                 "runpy.py", "bdb.py", "pdb.py", "cmd.py", "code.py", "codeop.py")
)  # fmt: skip
#: Where a suspended coroutine stands: on the yield, or (3.13) on the instruction that will take it up again.
_YIELDS = {dis.opmap[name] for name in ("YIELD_VALUE", "SEND", "RESUME") if name in dis.opmap}
_AWAITABLE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


@lru_cache(maxsize=4096)
def _is_hidden_file(filename: str) -> bool:
    return filename.startswith(_PACKAGE)


@lru_cache(maxsize=4096)
def _is_plumbing_file(filename: str) -> bool:
    return filename.startswith(_PLUMBING) or filename.startswith("<frozen ") or f"{os.sep}uvloop{os.sep}" in filename


def is_hidden(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the runtime."""
    return _is_hidden_file(frame.f_code.co_filename)


def is_plumbing(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the runtime or to what only carries a call."""
    filename = frame.f_code.co_filename
    return _is_hidden_file(filename) or _is_plumbing_file(filename)


def caller_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame at or above ``frame`` that is not the runtime's."""
    while frame is not None and is_hidden(frame):
        frame = frame.f_back
    return frame


def bottom_frame(frame: FrameType) -> FrameType:
    """Return the outermost frame of the user's above ``frame``: where the runtime called into their code."""
    bottom = frame
    walker: FrameType | None = frame
    while walker is not None:
        if not is_plumbing(walker):
            bottom = walker
        walker = walker.f_back
    return bottom


def visible(stack: list[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    """Return the part of a stack (outermost first) that a person wants to see; never an empty one."""
    start = next((i for i, (frame, _) in enumerate(stack) if not is_plumbing(frame)), None)
    if start is None:
        return stack[-1:]
    return [entry for entry in stack[start:] if not is_hidden(entry[0])]


def is_awaitable(frame: FrameType) -> bool:
    """Whether ``frame`` runs a coroutine or an async generator."""
    return bool(frame.f_code.co_flags & _AWAITABLE)


def is_suspension(frame: FrameType, arg: Any) -> bool:
    """Whether the 'return' event of a coroutine's frame only means that it waits for something."""
    if not is_awaitable(frame) or type(arg).__name__ == "async_generator_wrapped_value":
        return False
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] in _YIELDS

"""What a stack frame is doing, as the debugger's stepping must know it: coroutines that wait have not ended.

Which frames a person sees and steps through: `meshrt.inspect.visibility`.
"""

from __future__ import annotations

import dis
import inspect
import os
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from meshrt.files import INSTALLED, STDLIB_FILES
from meshrt.inspect.visibility import (
    bottom_frame,
    caller_frame,
    is_generated,
    is_hidden,
    is_hidden_file,
    is_plumbing,
    is_plumbing_file,
    visible,
)

__all__ = [
    "bottom_frame",
    "caller_frame",
    "is_awaitable",
    "is_hidden",
    "is_hidden_code",
    "is_plumbing",
    "is_suspension",
    "is_users",
    "user_frame",
    "visible",
]

#: Third parties' code that the runtime itself calls.
_CARRIERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("uvloop", "cloudpickle", "msgpack"))
#: Where a thread holds locks for moments that the control thread may want too, or is in the debugger itself.
_DELICATE = (
    *(STDLIB_FILES + name for name in ("logging/", "importlib/", "bdb.py", "pdb.py", "cmd.py")),
    "<frozen importlib",
)
#: Where a suspended coroutine stands: on the yield, or (3.13) on the instruction that will take it up again.
_YIELDS = {dis.opmap[name] for name in ("YIELD_VALUE", "SEND", "RESUME") if name in dis.opmap}
_AWAITABLE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def is_hidden_code(code: CodeType) -> bool:
    """Whether ``code`` belongs to the runtime."""
    return is_hidden_file(code.co_filename)


@lru_cache(maxsize=4096)
def _is_users_file(filename: str) -> bool:
    if is_plumbing_file(filename) or any(carrier in filename for carrier in _CARRIERS):
        return False
    return not filename.startswith(STDLIB_FILES) or any(part in filename for part in INSTALLED)


def is_users(frame: FrameType) -> bool:
    """Whether ``frame`` runs code of the user's own, or of a package that they installed."""
    return _is_users_file(frame.f_code.co_filename) and not is_generated(frame)


def user_frame(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """Return the innermost frame of the user's at or above ``frame``, and whether its thread may be stopped now.

    It may not while the runtime, an import, a log record or the debugger itself is at work: others need what they hold.
    """
    safe = True
    while frame is not None and not is_users(frame):
        filename = frame.f_code.co_filename
        safe = safe and not is_hidden(frame) and not filename.startswith(_DELICATE)
        frame = frame.f_back
    return frame, safe


def is_awaitable(frame: FrameType) -> bool:
    """Whether ``frame`` runs a coroutine or an async generator."""
    return bool(frame.f_code.co_flags & _AWAITABLE)


def is_suspension(frame: FrameType, arg: Any) -> bool:
    """Whether the 'return' event of a coroutine's frame only means that it waits for something."""
    if not is_awaitable(frame) or type(arg).__name__ == "async_generator_wrapped_value":
        return False
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] in _YIELDS

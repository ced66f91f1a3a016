"""What a stack frame is doing, for the debugger's stepping: a coroutine that waits has not ended.

`meshrt.inspect.visibility` says which frames a person sees and steps through.
"""

from __future__ import annotations

import dis
import inspect
import os
from functools import lru_cache
from types import CodeType, FrameType

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

#: Third-party code that the runtime itself calls.
_CARRIERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("uvloop", "cloudpickle", "msgpack"))
#: Code that holds, for moments, locks that the control thread needs too; and the debugger itself.
_DELICATE = (
    *(STDLIB_FILES + name for name in ("logging/", "importlib/", "bdb.py", "pdb.py", "cmd.py")),
    "<frozen importlib",
)
#: The instruction at which a coroutine is suspended: the yield, or (3.13) the one that will resume it.
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
    """Whether ``frame`` runs the user's own code, or code of a package that the user has installed."""
    return _is_users_file(frame.f_code.co_filename) and not is_generated(frame)


def user_frame(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """Return the innermost user frame among ``frame`` and its callers, and whether its thread may be stopped now.

    The thread may not be stopped inside the runtime, an import, a log record or the debugger: other threads need the
    locks that these hold.
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


def is_suspension(frame: FrameType, arg: object) -> bool:
    """Whether the 'return' event of a coroutine's frame only means that it waits for something."""
    if not is_awaitable(frame) or type(arg).__name__ == "async_generator_wrapped_value":
        return False
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] in _YIELDS

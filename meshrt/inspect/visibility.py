"""Which stack frames a person wants to see: their own, not those of the runtime.

Classes of files:

* *hidden*: the meshrt package, its event loop, and debugpy's engine. Never shown, never stepped into.
* *plumbing*: what carries a call without being the matter (event loops, threads' first functions). Not stepped into,
  and cut off where the stack begins; in the middle of a stack it is shown.
* *debugging*: the debugger's own, and the standard library's below it. A thread that stands in there was stopped.
* everything else is the user's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from types import FrameType
from typing import TypeVar

from meshrt.files import EVENT_LOOP_FILES, RUNTIME_FILES, STDLIB_FILES, is_library_file

__all__ = [
    "bottom_frame",
    "caller_frame",
    "cut",
    "debugger_index",
    "is_debugging_file",
    "is_generated",
    "is_hidden",
    "is_hidden_file",
    "is_plumbing",
    "is_plumbing_file",
    "own_index",
    "visible",
]

T = TypeVar("T")

_DEBUGGERS = tuple(STDLIB_FILES + name for name in ("bdb.py", "pdb.py", "cmd.py"))
#: The engine of an IDE, which is in a rank as the debugger is.
_IDE_ENGINE = os.path.join("", "debugpy", "_vendored", "")
_PLUMBING = (
    *(
        STDLIB_FILES + name
        for name in ("asyncio/", "concurrent/", "multiprocessing/", "threading.py", "selectors.py", "contextlib.py",
                     "runpy.py", "code.py", "codeop.py")
    ),
    *_DEBUGGERS,
)  # fmt: skip


@lru_cache(maxsize=4096)
def is_hidden_file(filename: str) -> bool:
    """Whether ``filename`` is one of the runtime's, or of the engine that an IDE has brought along."""
    return filename.startswith((RUNTIME_FILES, EVENT_LOOP_FILES)) or _IDE_ENGINE in filename


@lru_cache(maxsize=4096)
def is_plumbing_file(filename: str) -> bool:
    """Whether ``filename`` is the runtime's, or only carries a call."""
    return (
        is_hidden_file(filename)
        or filename.startswith(_PLUMBING)
        or filename.startswith("<frozen ")
        or f"{os.sep}uvloop{os.sep}" in filename
    )


@lru_cache(maxsize=4096)
def is_debugging_file(filename: str) -> bool:
    """Whether ``filename`` is the debugger's, or of the standard library's debugger below it."""
    return filename.startswith((os.path.join(RUNTIME_FILES, "debug", ""), *_DEBUGGERS)) or _IDE_ENGINE in filename


def own_index(filenames: Sequence[str]) -> int:
    """Return the index of the innermost file that the user wrote (the innermost of all, if none is); -1 for none."""
    own = (
        index
        for index in range(len(filenames) - 1, -1, -1)
        if not is_hidden_file(filenames[index]) and not is_library_file(filenames[index])
    )
    return next(own, len(filenames) - 1)


def is_hidden(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the runtime, even if its file does not say so."""
    return is_hidden_file(frame.f_code.co_filename) or is_generated(frame)


def is_plumbing(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the runtime or to what only carries a call."""
    return is_plumbing_file(frame.f_code.co_filename) or is_generated(frame)


def is_generated(frame: FrameType) -> bool:
    """Whether ``frame`` is of the runtime although no file says so: what ``dataclass`` or ``NamedTuple`` has made."""
    if frame.f_code.co_filename != "<string>":
        return False
    module, back = str(frame.f_globals.get("__name__")), frame.f_back
    if module.startswith("namedtuple_"):  # globals of its own: whose it is can be told by who calls it
        return back is not None and is_plumbing_file(back.f_code.co_filename)
    return module.startswith("meshrt.")


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


def cut(stack: list[T], filenames: list[str]) -> list[T]:
    """Return the part of a stack (outermost first) that a person wants to see; empty if nothing is the user's.

    Args:
        stack: The frames, in any form.
        filenames: The file of each.
    """
    start = next((i for i, name in enumerate(filenames) if not is_plumbing_file(name)), None)
    if start is None:
        return []
    return [stack[i] for i in range(start, len(stack)) if not is_hidden_file(filenames[i])]


def debugger_index(filenames: Sequence[str]) -> int | None:
    """Return where the debugger begins in a stack (outermost first) that is stopped in it, or None."""
    users = next((index for index, name in enumerate(filenames) if not is_plumbing_file(name)), 0)
    begin = next((index for index in range(users, len(filenames)) if is_debugging_file(filenames[index])), None)
    if begin is None or not all(map(is_plumbing_file, filenames[begin:])):
        return None
    imported = begin > 0 and filenames[begin - 1].startswith("<frozen importlib")  # it is being loaded for a breakpoint
    return None if imported else begin


def visible(stack: list[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    """Like `cut` for a debugger's stack; never empty: at least the innermost frame is shown."""
    return cut(stack, [frame.f_code.co_filename for frame, _ in stack]) or stack[-1:]

"""Which stack frames a user wants to see: their own, not those of the runtime.

Classes of files:

* *hidden*: the meshrt package, its event loop, debugpy's engine, and what runs between an ``import`` and the module, as
  in tracebacks of Python. Never shown, never stepped into.
* *plumbing*: code that only carries a call (event loops, threads' first functions). Not stepped into, and cut off at
  the outer end of the stack; in the middle of a stack it is shown.
* *debugging*: the debugger's own, and the standard library's below it. A thread in there is stopped.
* everything else is the user's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from types import FrameType
from typing import TypeVar

from meshrt.files import COMMAND_FILE, EVENT_LOOP_FILES, RUNTIME_FILES, STDLIB_FILES, is_library_file
from meshrt.inspect.shortening import short_path

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
    "own_line",
    "visible",
]

T = TypeVar("T")

_DEBUGGERS = tuple(STDLIB_FILES + name for name in ("bdb.py", "pdb.py", "cmd.py"))
_OWN_DEBUGGER = os.path.join(RUNTIME_FILES, "debug", "")
#: The engine of an IDE, which runs in a rank like the debugger.
_IDE_ENGINE = os.path.join("", "debugpy", "_vendored", "")
#: Python's import system: ``_bootstrap`` and ``_bootstrap_external``.
_IMPORTS = "<frozen importlib._bootstrap"
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
    """Whether ``filename`` belongs to the runtime, to the engine of an IDE, or to Python's import system."""
    return (
        filename.startswith((RUNTIME_FILES, EVENT_LOOP_FILES, _IMPORTS))
        or filename.endswith(COMMAND_FILE)
        or _IDE_ENGINE in filename
    )


@lru_cache(maxsize=4096)
def is_plumbing_file(filename: str) -> bool:
    """Whether ``filename`` belongs to the runtime, or to code that only carries a call."""
    return (
        is_hidden_file(filename)
        or filename.startswith(_PLUMBING)
        or filename.startswith("<frozen ")
        or f"{os.sep}uvloop{os.sep}" in filename
    )


@lru_cache(maxsize=4096)
def is_debugging_file(filename: str) -> bool:
    """Whether ``filename`` belongs to the debugger, or to the standard library's debugger below it."""
    return filename.startswith((_OWN_DEBUGGER, *_DEBUGGERS)) or _IDE_ENGINE in filename


def own_index(filenames: Sequence[str]) -> int:
    """Return the index of the innermost file that the user wrote; else of the innermost one; -1: no files."""
    own = (
        index
        for index in range(len(filenames) - 1, -1, -1)
        if not is_hidden_file(filenames[index]) and not is_library_file(filenames[index])
    )
    return next(own, len(filenames) - 1)


def own_line(frame: FrameType | None) -> str:
    """Return the innermost line of a stack that the user wrote, ``"train.py:42, in prepare()"``, or ""."""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if not is_hidden_file(file) and not is_library_file(file):
            return f"{short_path(file)}:{frame.f_lineno}" + (f", in {name}()" if name.isidentifier() else "")
        frame = frame.f_back
    return ""


def is_hidden(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the runtime, even if its file does not say so."""
    return is_hidden_file(frame.f_code.co_filename) or is_generated(frame)


def is_plumbing(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the runtime or to code that only carries a call."""
    return is_plumbing_file(frame.f_code.co_filename) or is_generated(frame)


def is_generated(frame: FrameType) -> bool:
    """Whether ``frame`` is code of the runtime without a file, made by ``dataclass`` or ``NamedTuple``."""
    if frame.f_code.co_filename != "<string>":
        return False
    module, back = str(frame.f_globals.get("__name__")), frame.f_back
    if module.startswith("namedtuple_"):  # it has its own globals: its caller shows whose it is
        return back is not None and is_plumbing_file(back.f_code.co_filename)
    return module.startswith("meshrt.")


def caller_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame at or above ``frame`` that is not the runtime's; None: there is none."""
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
    """Return the part of a stack (outermost first) that a user wants to see; empty if nothing is the user's.

    Args:
        stack: The frames, in any form.
        filenames: The file of each.
    """
    start = next((i for i, name in enumerate(filenames) if not is_plumbing_file(name)), None)
    if start is None:
        return []
    # At a prompt the debugger runs code of the user's: a `debug` command, a `__repr__`.
    prompted = any(name.startswith(_OWN_DEBUGGER) for name in filenames)
    behind = zip(stack[start:], filenames[start:], strict=True)
    return [each for each, name in behind if not (is_hidden_file(name) or (prompted and is_debugging_file(name)))]


def debugger_index(filenames: Sequence[str]) -> int | None:
    """Return the index where the debugger begins in a stack (outermost first) that is stopped in it, or None."""
    # Behind the last code of the user's: what a `debug` command runs may be stopped in the debugger, too.
    users = next((index for index in range(len(filenames), 0, -1) if not is_plumbing_file(filenames[index - 1])), 0)
    begin = next((index for index in range(users, len(filenames)) if is_debugging_file(filenames[index])), None)
    if begin is None:
        return None
    imported = begin > 0 and filenames[begin - 1].startswith("<frozen importlib")  # it is being loaded for a breakpoint
    return None if imported else begin


def visible(stack: list[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    """Return what `cut` does, for a debugger's stack; at least the innermost frame."""
    return cut(stack, [frame.f_code.co_filename for frame, _ in stack]) or stack[-1:]

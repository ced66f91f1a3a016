"""Tracebacks of the script, as they are shown when it ends: without the runtime's frames.

An error of a rank is one line in them, as the report of the failure follows. An exception of user code that the runtime
had called (a hook) is shown without the frames between.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from meshrt.errors import MeshError, one_line
from meshrt.files import RUNTIME_FILES, STDLIB_FILES, users_part
from meshrt.wire.codec import own_attribute, text_of

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "HEADLINE",
    "awaiting",
    "fold_in_ipython",
    "folded",
    "has_come_through",
    "interrupted_at",
    "is_of_a_rank",
    "own_frames",
    "place_of",
]

#: Characters of the line for an error of a rank.
HEADLINE = 500
_HEAD = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def is_of_a_rank(error: BaseException | None) -> bool:
    """Whether an error, its cause, its context or a member of its group comes from a rank."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        facts = own_attribute(current, "__dict__")
        if issubclass(type(current), MeshError) and ("place" in facts or "missing" in facts):
            return True
        waiting += [own_attribute(current, "__cause__"), own_attribute(current, "__context__")]
        if issubclass(type(current), BaseExceptionGroup):
            waiting += BaseExceptionGroup.__dict__["exceptions"].__get__(current)
    return False


def folded(shown: traceback.TracebackException, error: BaseException, *, brief: bool) -> Iterator[str]:
    """Make the text of a traceback without the runtime's frames.

    Args:
        brief: Show only the first line of an error of a rank: the report has the rest.
    """
    cause, context = own_attribute(error, "__cause__"), own_attribute(error, "__context__")
    if cause is not None and shown.__cause__ is not None:
        yield from folded(shown.__cause__, cause, brief=brief)
        yield _CAUSE
    elif context is not None and shown.__context__ is not None and not own_attribute(error, "__suppress_context__"):
        yield from folded(shown.__context__, context, brief=brief)
        yield _CONTEXT
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, MeshError):
        yield from shown.format(chain=False)
        return
    frames = [frame for frame in shown.stack if not frame.filename.startswith(RUNTIME_FILES)]
    if frames:
        yield _HEAD
        yield from traceback.StackSummary.from_list(frames).format()
    if brief and isinstance(error, MeshError):
        name = f"{type(error).__module__}.{type(error).__name__}"
        yield one_line(f"{name}: {text_of(error).partition(chr(10))[0]}", HEADLINE) + "\n"
        remote = getattr(getattr(error, "remote", None), "notes", ())
        yield from (f"{note}\n" for note in getattr(error, "__notes__", ()) if note not in remote)
    else:
        yield from shown.format_exception_only()


def fold_in_ipython() -> None:
    """Have IPython and Jupyter, where they run the script, show no frames of the runtime in any traceback."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or "structured_traceback" in vars(shell.InteractiveTB):
        return
    shown = shell.InteractiveTB.structured_traceback

    def structured(kind: object, error: object, walker: TracebackType | None, *more: object, **how: object) -> object:
        return shown(kind, error, users_part(walker), *more, **how)

    shell.InteractiveTB.structured_traceback = structured


def interrupted_at(error: BaseException, walker: TracebackType | None) -> str:
    """Return the innermost line of the script; for a task that asyncio has cancelled by Ctrl-C, where it awaited."""
    context = own_attribute(error, "__context__")
    cancelled = context is not None and type(context).__name__ == "CancelledError"
    return (place_of(own_attribute(context, "__traceback__")) if cancelled else "") or place_of(walker)


def own_frames() -> Iterator[FrameType]:
    """Yield the frames of this thread, innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def awaiting(task: asyncio.Task[object]) -> Iterator[FrameType]:
    """Yield the frames of the coroutines that a task is suspended in, outermost first."""
    coroutine: object = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)


def place_of(walker: TracebackType | None) -> str:
    """Return the innermost line of the script."""
    found = ""
    while walker is not None:
        code = walker.tb_frame.f_code
        if not code.co_filename.startswith((RUNTIME_FILES, STDLIB_FILES, "<frozen ")):
            found = f" at {code.co_filename}:{walker.tb_lineno}, in {code.co_name}"
        walker = walker.tb_next
    return found


def has_come_through(walker: TracebackType | None) -> bool:
    """Whether an exception of user code has passed the runtime, which had called it: not one of the runtime's own."""
    through, own = False, False
    while walker is not None:
        file = walker.tb_frame.f_code.co_filename
        if file.startswith(RUNTIME_FILES):
            through = own = True
        elif not file.startswith(STDLIB_FILES):
            own = False
        walker = walker.tb_next
    return through and not own

"""Where a thread or a coroutine stands: what awaits what, and whether a line that was typed may be broken there."""

from __future__ import annotations

from collections.abc import Callable, Container
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

from meshrt.debug.stepping import is_hidden, is_users
from meshrt.inspect.visibility import is_debugging_file

__all__ = ["await_chain", "may_break", "never_broken", "raise_in", "runs_lines", "take_back"]

P = ParamSpec("P")
R = TypeVar("R")

#: More than this is no chain that a person reads.
_LONGEST = 1000


def await_chain(task: Any) -> list[tuple[FrameType, int]]:
    """Return the stack frames in which ``task`` waits, outermost first, with their lines; the user's code only.

    A task that waits for another one goes on with that one's, a ``gather`` of which one is left too. On the thread of
    the task's loop, while it is suspended.
    """
    chain: list[tuple[FrameType, int]] = []
    seen: set[int] = set()
    while task is not None and id(task) not in seen:
        seen.add(id(task))
        awaited = task.get_coro()
        for _ in range(_LONGEST):
            frame = _attribute(awaited, "frame")
            if frame is not None and is_users(frame):
                chain.append((frame, frame.f_lineno))
            awaited = _attribute(awaited, "await") or _attribute(awaited, "yieldfrom")
            if awaited is None:
                break
        task = _next_task(getattr(task, "_fut_waiter", None))
    return chain


def _attribute(awaited: Any, name: str) -> Any:
    for prefix in ("cr", "ag", "gi"):
        value = getattr(awaited, f"{prefix}_{name}", None)
        if value is not None:
            return value
    return None


def _next_task(waiter: Any) -> Any:
    if hasattr(waiter, "get_coro"):
        return waiter
    left = [child for child in getattr(waiter, "_children", ()) if not child.done()]
    return left[0] if len(left) == 1 and hasattr(left[0], "get_coro") else None


#: What runs a line of a prompt, and catches the KeyboardInterrupt that ends it.
_PROMPT: set[CodeType] = set()

#: What is never cut short, as nobody could go on after half of it.
_WHOLE: set[CodeType] = set()


def runs_lines(function: Callable[P, R]) -> Callable[P, R]:
    """Let a KeyboardInterrupt that a person asks for be raised in what ``function`` calls, which catches it."""
    _PROMPT.add(function.__code__)
    return function


def never_broken(function: Callable[P, R]) -> Callable[P, R]:
    """Let no KeyboardInterrupt that a person asks for be raised in ``function``, or in what it calls."""
    _WHOLE.add(function.__code__)
    return function


def may_break(frame: FrameType | None, within: Container[CodeType] = _PROMPT) -> bool:
    """Whether ``frame`` is at work on what a person has asked for, in code that KeyboardInterrupt may be raised in.

    That is the user's, or the standard library's; not the runtime's, or the debugger's own.

    Args:
        within: The functions that catch it: of a line of the prompt, if they are not given.
    """
    others = users = False
    while frame is not None:
        if frame.f_code in within:
            return others
        if frame.f_code in _WHOLE:
            return False
        filename = frame.f_code.co_filename
        if not users and (is_hidden(frame) and (not others or not is_debugging_file(filename))):
            return False
        users = users or is_users(frame)
        others = others or not is_debugging_file(filename)
        frame = frame.f_back
    return False


def raise_in(ident: int, kind: type[BaseException]) -> None:
    """Raise ``kind`` on another thread, once C code returns there."""
    import ctypes  # start-up: needed only for what does not end

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind))


class _Instead(BaseException):
    """Takes the place of what was to be raised in a thread."""


def take_back() -> None:
    """What others have raised in the calling thread, and has not arrived there, never does."""
    # To replace it by nothing would leave the interpreter looking for it for ever: each call of a function takes longer
    # then, and where Python 3.11 traces calls it does not come back from the first one.
    try:
        raise_in(get_ident(), _Instead)
        while True:
            pass
    except _Instead:
        pass

"""Where a thread or a coroutine waits: the chain of awaits, and whether a typed line may be interrupted there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Container
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

from meshrt.debug.stepping import is_hidden, is_users
from meshrt.inspect.visibility import is_debugging_file

__all__ = ["await_chain", "holding", "may_break", "never_broken", "raise_in", "runs_lines", "take_back"]

P = ParamSpec("P")
R = TypeVar("R")

#: Longest chain that is followed.
_LONGEST = 1000


def await_chain(task: Any) -> list[tuple[FrameType, int]]:
    """Return the stack frames in which ``task`` waits, outermost first, with their lines; the user's code only.

    If it waits for another task, or for a ``gather`` with one task left, the chain goes on with that one's frames. On
    the thread of the task's loop, while the task is suspended.
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


def _next_task(waiter: object) -> object:
    if hasattr(waiter, "get_coro"):
        return waiter
    left = [child for child in getattr(waiter, "_children", ()) if not child.done()]
    return left[0] if len(left) == 1 and hasattr(left[0], "get_coro") else None


#: Code that runs a line of a prompt, and catches the KeyboardInterrupt that ends it.
_PROMPT: set[CodeType] = set()

#: Code that is never interrupted, because half of it would leave an invalid state.
_WHOLE: set[CodeType] = set()


def runs_lines(function: Callable[P, R]) -> Callable[P, R]:
    """Allow the user's KeyboardInterrupt in what ``function`` calls; ``function`` catches it. A decorator."""
    _PROMPT.add(function.__code__)
    return function


def never_broken(function: Callable[P, R]) -> Callable[P, R]:
    """Forbid the user's KeyboardInterrupt in ``function``, and in what it calls. A decorator."""
    _WHOLE.add(function.__code__)
    return function


def may_break(frame: FrameType | None, within: Container[CodeType] = _PROMPT) -> bool:
    """Whether ``frame`` runs a request of the user's, in code where KeyboardInterrupt may be raised.

    That is user code or the standard library's; not the runtime's, nor the debugger's own.

    Args:
        within: The functions that catch the exception; by default, those that run a line of the prompt.
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
    """Raise ``kind`` on the thread ``ident``, once C code returns there. Any thread."""
    import ctypes  # start-up: needed only to interrupt a line

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind))


def holding(lock: threading.RLock, action: Callable[[], None]) -> None:
    """Run ``action`` with a lock, on a thread in which another one may raise an exception.

    A ``with`` statement does not do: on Python 3.14 the exception may come between the lock and the block.
    """
    try:
        lock.acquire()
        action()
    finally:
        with contextlib.suppress(RuntimeError):  # it was not taken
            lock.release()


class _Instead(BaseException):
    """Replaces an exception that was to be raised in a thread."""


def take_back() -> None:
    """Withdraw an exception that another thread has raised in the calling one, and that has not arrived yet."""
    # To replace it by nothing would leave the interpreter looking for it for ever: each function call takes longer
    # then, and where Python 3.11 traces calls, the first one does not return.
    try:
        raise_in(get_ident(), _Instead)
        while True:
            pass
    except _Instead:
        pass

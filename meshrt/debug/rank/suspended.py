"""The stack of a coroutine that waits: what awaits what, from the endpoint down to what is not done yet."""

from __future__ import annotations

from types import FrameType
from typing import Any

from meshrt.debug.stepping import is_users

__all__ = ["await_chain"]

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

"""``await`` at the prompt: it runs on an event loop of its own, while the actor's is stopped."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
from collections.abc import Coroutine
from types import CodeType
from typing import TYPE_CHECKING, TypeVar

from meshrt.debug.rank.console import Console
from meshrt.debug.rank.suspended import never_broken

if TYPE_CHECKING:
    import asyncio

__all__ = ["compiled", "run"]

T = TypeVar("T")

_ELSEWHERE = (
    "this awaits something that belongs to the actor's own event loop, which does not run while the rank is stopped; "
    "`n` over the line that awaits it lets that loop run"
)


def compiled(source: str, mode: str) -> CodeType | None:
    """Return ``source`` as code that evaluates to a coroutine, if it has an ``await`` of its own; else None.

    Args:
        mode: "eval", "exec" or "single", as for ``compile()``.
    """
    if "await" not in source and "async" not in source:
        return None
    try:
        code = compile(source, "<stdin>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError):
        return None  # the caller compiles it again, and that reports the error
    return code if code.co_flags & inspect.CO_COROUTINE else None


def run(coroutine: Coroutine[object, None, T], console: Console) -> T:
    """Run ``coroutine`` to its end on the calling thread, even if an event loop runs there already.

    Raises:
        RuntimeError: It waits for something that belongs to the actor's own loop.
        CancelledError: The user resumed the rank meanwhile.
    """
    import asyncio  # start-up: needed only for an `await`, not for a breakpoint

    outer = asyncio._get_running_loop()
    hooks = sys.get_asyncgen_hooks()
    loop, current = _begin(outer)
    try:
        task = loop.create_task(coroutine)
        console.cancel = lambda: _cancel(loop, task)
        if console.released:
            task.cancel()
        try:
            return loop.run_until_complete(task)
        finally:
            console.cancel = None
            loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_asyncgens())
    except RuntimeError as error:
        text = str(error)
        if "different loop" in text or "different event loop" in text:
            raise RuntimeError(_ELSEWHERE) from error
        raise
    finally:
        _end(loop, outer, current, hooks)


@never_broken
def _begin(outer: asyncio.AbstractEventLoop | None) -> tuple[asyncio.AbstractEventLoop, object]:
    """Return a new loop, and the task that runs on this thread: from 3.14 on it keeps others from running there."""
    import asyncio  # start-up: as above

    loop, current = asyncio.new_event_loop(), None
    if sys.version_info >= (3, 14) and outer is not None:
        current = asyncio.tasks._swap_current_task(outer, None)
    asyncio._set_running_loop(None)
    return loop, current


@never_broken
def _end(
    loop: asyncio.AbstractEventLoop,
    outer: asyncio.AbstractEventLoop | None,
    current: object,
    hooks: sys._asyncgen_hooks,
) -> None:
    """Close ``loop``, and restore the loop that ran on this thread before, wherever the coroutine was interrupted."""
    import asyncio  # start-up: as above

    asyncio._set_running_loop(None)
    sys.set_asyncgen_hooks(*hooks)
    try:
        loop.close()
    finally:
        asyncio._set_running_loop(outer)
        if sys.version_info >= (3, 14) and outer is not None:
            asyncio.tasks._swap_current_task(outer, current)


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> None:
    with contextlib.suppress(RuntimeError):  # the coroutine has just ended, and the loop is closed
        loop.call_soon_threadsafe(task.cancel)


async def _end_tasks() -> None:
    import asyncio  # start-up: as above

    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

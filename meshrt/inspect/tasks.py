"""Where the asyncio tasks of an event loop are, seen from another thread.

A suspended task changes only while its loop's thread runs, and that thread needs the GIL: what is read without a
release of the GIL is consistent. Only the interpreter's own coroutine types are read; attributes of others may be user
code.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from meshrt.inspect.stacks import Entry, Mark, Stack

if TYPE_CHECKING:
    import asyncio

__all__ = ["TaskLook", "Tasks"]

#: Most tasks of one loop that are looked at.
_MOST = 200
_DEEPEST = 200
#: Types that wrap a coroutine or an async generator, and refer to it only in the garbage collector's view.
_WRAPPERS = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")
#: Type of the object that a coroutine holds while it awaits a future.
_FUTURE_ITERATOR = "FutureIter"
#: Type of the result of ``asyncio.gather``.
_GATHERED = "_GatheringFuture"


class TaskLook(msgspec.Struct):
    """One task at one look."""

    task: asyncio.Task[Any]
    name: str
    #: Outermost first.
    stack: Stack
    #: Its loop's thread runs it now; its stack is that of the thread.
    running: bool
    #: Type of the object that it waits for; "": it does not wait.
    awaits: str
    mark: Mark
    #: This task, and the tasks that it waits for.
    waiters: Sequence[object]
    #: It waits for its turn on the loop's thread only, as in ``asyncio.sleep(0)``.
    ready: bool = False


class Tasks:
    """The tasks of all loops, look by look."""

    def __init__(self) -> None:
        self._marks: weakref.WeakKeyDictionary[asyncio.Task[object], Mark] = weakref.WeakKeyDictionary()

    def look(self, loop: asyncio.AbstractEventLoop) -> list[TaskLook]:
        """Return a look at the tasks of ``loop`` that have not ended, the oldest first."""
        import asyncio  # start-up: it is loaded where a loop runs

        now = time.monotonic()
        tasks: Sequence[object] = list(asyncio.all_tasks(loop))[:_MOST]
        found = [self._look(task, now) for task in tasks if isinstance(task, asyncio.Task)]
        return sorted(found, key=lambda look: (len(look.name), look.name))

    def _look(self, task: asyncio.Task[object], now: float) -> TaskLook:
        from asyncio import Future, Task  # start-up: as above

        stack, where, running, awaited = _chain(Task.get_coro(task))
        before = self._marks.get(task)
        same = before is not None and before.where[:-1] == where and _is_same(before.where[-1], awaited)
        since = before.since if same and before is not None else now
        mark = self._marks[task] = Mark((*where, _reference(awaited)), since, now)
        awaits = type(awaited).__name__ if awaited is not None else ""
        waiters = _waiters(task, awaited, Task)
        is_future = type(awaited) in (Future, Task)  # other types may run user code
        ready = not running and (awaited is None or (is_future and cast("Future[object]", awaited).done()))
        return TaskLook(task, str(Task.get_name(task)), stack, running, awaits, mark, waiters, ready)


def _waiters(task: asyncio.Task[object], awaited: object, task_type: type[asyncio.Task[object]]) -> list[object]:
    """Return a task, and the tasks that it awaits: one, or those that it has gathered."""
    if type(awaited) is task_type:
        return [task, awaited]
    gathered = getattr(awaited, "_children", ()) if type(awaited).__name__ == _GATHERED else ()
    return [task, *list(gathered)[:_MOST]]


def _reference(awaited: object) -> object:
    """Return a weak reference, if possible: a new future may have the id of an earlier one."""
    try:
        return weakref.ref(awaited)
    except TypeError:
        return id(awaited)


def _is_same(reference: object, awaited: object) -> bool:
    return reference() is awaited if isinstance(reference, weakref.ref) else reference == id(awaited)


def _chain(coroutine: object) -> tuple[Stack, tuple[int, int], bool, object]:
    """Return where a task's coroutine waits.

    Returns:
        The frames from the coroutine to what it waits for; id and instruction of the innermost frame; whether they run
        now; and the object that is awaited, or None: it waits for nothing.
    """
    stack: Stack = []
    where = (0, 0)
    for _ in range(_DEEPEST):
        match coroutine:
            case CoroutineType():
                frame, running, inner = coroutine.cr_frame, coroutine.cr_running, coroutine.cr_await
            case GeneratorType():
                frame, running, inner = coroutine.gi_frame, coroutine.gi_running, coroutine.gi_yieldfrom
            case AsyncGeneratorType():
                # `ag_running` only says that the generator is awaited; if it runs, so does what awaits it.
                frame, running, inner = coroutine.ag_frame, False, coroutine.ag_await
            case _ if type(coroutine).__name__ in _WRAPPERS:
                inside = next((each for each in gc.get_referents(coroutine) if _leads_on(each)), None)
                if inside is None:
                    return stack, where, False, coroutine
                coroutine = inside
                continue
            case _ if type(coroutine).__name__ == _FUTURE_ITERATOR:
                # From Python 3.12 on, its type is among what it refers to.
                held = (each for each in gc.get_referents(coroutine) if not isinstance(each, type))
                return stack, where, False, next(held, coroutine)
            case _:
                return stack, where, False, coroutine
        if frame is None:
            return stack, where, running, None
        stack.append(Entry(frame.f_code, frame.f_lineno or 0, frame.f_lasti))
        where = (id(frame), frame.f_lasti)
        if running:
            return stack, where, True, None
        coroutine = inner
    return stack, where, False, coroutine


def _leads_on(inside: object) -> bool:
    """Whether the object that a wrapper refers to is what it awaits."""
    return isinstance(inside, CoroutineType | AsyncGeneratorType) or type(inside).__name__ in _WRAPPERS

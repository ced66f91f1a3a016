"""Where the asyncio tasks of an event loop are, seen from another thread.

A task that is suspended changes only while its loop's thread runs, and that thread needs the GIL: what is read in one
go is consistent. Only the interpreter's own coroutine types are looked into; attributes of others may be user code.
"""

from __future__ import annotations

import gc
import sys
import time
import weakref
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from meshrt.inspect.stacks import Entry, Mark, Stack

__all__ = ["TaskLook", "Tasks"]

#: Tasks of one loop that are looked at.
_MOST = 200
_DEEPEST = 200
#: Wrap a coroutine or an async generator, and name it nowhere but among what the garbage collector sees.
_WRAPPERS = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")
#: What a coroutine holds that awaits a future.
_FUTURE_ITERATOR = "FutureIter"
#: What ``asyncio.gather`` returns.
_GATHERED = "_GatheringFuture"


@dataclass(slots=True)
class TaskLook:
    """One task at one look."""

    task: Any
    name: str
    #: Outermost first.
    stack: Stack
    #: It is the one that its loop's thread runs now; its stack is that of the thread.
    running: bool
    #: Type of what it waits for.
    awaits: str
    mark: Mark
    #: The tasks that it waits for, itself among them.
    waiters: list[Any]


class Tasks:
    """The tasks of all loops, look by look."""

    def __init__(self) -> None:
        self._marks: weakref.WeakKeyDictionary[Any, Mark] = weakref.WeakKeyDictionary()

    def look(self, loop: Any) -> list[TaskLook]:
        """Look at the tasks of ``loop`` that have not ended, the oldest first."""
        asyncio = sys.modules["asyncio"]
        now = time.monotonic()
        found = [
            self._look(task, asyncio.Task, now)
            for task in list(asyncio.all_tasks(loop))[:_MOST]
            if isinstance(task, asyncio.Task)
        ]
        return sorted(found, key=lambda look: (len(look.name), look.name))

    def _look(self, task: Any, task_type: Any, now: float) -> TaskLook:
        stack, where, running, awaited = _chain(task_type.get_coro(task))
        before = self._marks.get(task)
        same = before is not None and before.where[:-1] == where and _is_same(before.where[-1], awaited)
        since = before.since if same and before is not None else now
        mark = self._marks[task] = Mark((*where, _reference(awaited)), since, now)
        awaits = type(awaited).__name__ if awaited is not None else ""
        return TaskLook(task, str(task_type.get_name(task)), stack, running, awaits, mark, _waiters(task, awaited))


def _waiters(task: Any, awaited: Any) -> list[Any]:
    """Return a task, and those that it awaits: one, or the ones that it has gathered."""
    asyncio = sys.modules["asyncio"]
    if type(awaited) is asyncio.Task:
        return [task, awaited]
    gathered = awaited._children if type(awaited).__name__ == _GATHERED else ()
    return [task, *list(gathered)[:_MOST]]


def _reference(awaited: Any) -> Any:
    """A new future may lie where the last one lay: by a weak reference they differ."""
    try:
        return weakref.ref(awaited)
    except TypeError:
        return id(awaited)


def _is_same(reference: Any, awaited: Any) -> bool:
    return reference() is awaited if isinstance(reference, weakref.ref) else reference == id(awaited)


def _chain(coroutine: Any) -> tuple[Stack, tuple[int, int], bool, Any]:
    """Return the frames from a task's coroutine to what it waits for, the innermost one's id and instruction, whether
    they run now, and what is waited for."""
    stack: Stack = []
    where = (0, 0)
    for _ in range(_DEEPEST):
        match coroutine:
            case CoroutineType():
                frame, running, inner = coroutine.cr_frame, coroutine.cr_running, coroutine.cr_await
            case GeneratorType():
                frame, running, inner = coroutine.gi_frame, coroutine.gi_running, coroutine.gi_yieldfrom
            case AsyncGeneratorType():
                # Its `ag_running` only says that somebody waits for it; whoever runs it is running as well.
                frame, running, inner = coroutine.ag_frame, False, coroutine.ag_await
            case _ if type(coroutine).__name__ in _WRAPPERS:
                kinds = (CoroutineType, AsyncGeneratorType)
                coroutine = next((each for each in gc.get_referents(coroutine) if isinstance(each, kinds)), None)
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
    return stack, where, False, None

"""What the threads and asyncio tasks of a process wait for, and since when.

`meshrt.transport.waiting` writes it. No lock is needed: a thread sets its own entry, in one operation on a dict.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import CoroutineType, FrameType
from typing import TYPE_CHECKING, cast

from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.hooks.facts import Wait
from meshrt.transport.clock import Deadline
from meshrt.transport.pending import Pending

if TYPE_CHECKING:
    import asyncio

__all__ = ["Waits"]

#: Awaited calls that are remembered when Ctrl-C has cancelled them.
_CANCELLED = 8


class Waits:
    """The waits of a process. Any thread.

    Attributes:
        entries: The ident of a thread, or an asyncio task -> what it waits for, since when (monotonic seconds), and
            until when at most (None: for ever).
        cancelled: What was awaited when Ctrl-C cancelled that, the latest ones, and when; monotonic seconds.
    """

    def __init__(self) -> None:
        self.entries: dict[object, tuple[Pending, float, Deadline | None]] = {}
        self.cancelled: deque[tuple[Pending, float]] = deque(maxlen=_CANCELLED)

    def of(self, waiter: object) -> Wait | None:
        """See `meshrt.hooks.services.RankServices.wait_of`."""
        found = self.entries.get(waiter)
        return None if found is None else self._describe(*found)

    def since(self, thread: int) -> float | None:
        """See `meshrt.hooks.services.RankServices.waits_since`."""
        found = self.entries.get(thread)
        return None if found is None else found[1]

    def longest_await(
        self, loop: asyncio.AbstractEventLoop | None
    ) -> tuple[asyncio.Task[object], Pending, float] | None:
        """Return the asyncio task of an event loop that has awaited longest, what, and since when.

        Args:
            loop: None: nothing is awaited.
        """
        awaits = [
            (cast("asyncio.Task[object]", waiter), pending, since)
            for waiter, (pending, since, _) in tuple(self.entries.items())
            if loop is not None and hasattr(waiter, "get_loop") and waiter.get_loop() is loop
        ]
        return min(awaits, key=lambda each: each[2], default=None)

    def all(self) -> list[Wait]:
        """See `meshrt.hooks.services.RootServices.script_waits`."""
        found = [(waiter, self._describe(*entry)) for waiter, entry in tuple(self.entries.items())]
        return [replace(wait, line=_line_of(waiter)) for waiter, wait in found if wait is not None]

    def _describe(self, pending: Pending, since: float, deadline: Deadline | None) -> Wait | None:
        wait = pending.awaited()
        if wait is None:
            return None
        left = None if deadline is None else max(0.0, deadline.left())
        return replace(wait, seconds=time.monotonic() - since, left=left)


def _line_of(waiter: object) -> str:
    """Return the innermost line of user code of a thread, or of a task that is suspended; "" if there is none."""
    own = [frame for frame in _frames_of(waiter) if _is_of_user(frame.f_code.co_filename)]
    return f"{own[-1].f_code.co_filename}:{own[-1].f_lineno}" if own else ""


def _frames_of(waiter: object) -> Iterator[FrameType]:
    """Yield the frames, outermost first."""
    if isinstance(waiter, int):
        frames, frame = [], sys._current_frames().get(waiter)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        yield from reversed(frames)
        return
    coroutine: object = cast("asyncio.Task[object]", waiter).get_coro()
    while isinstance(coroutine, CoroutineType):
        if coroutine.cr_frame is not None:
            yield coroutine.cr_frame
        coroutine = coroutine.cr_await


def _is_of_user(filename: str) -> bool:
    return not (filename.startswith(RUNTIME_FILES) or is_library_file(filename))

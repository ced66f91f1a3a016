"""``nursery()``: calls that end with a block.

::

    with meshrt.nursery() as calls:
        losses = calls.start(trainers.step.call(batch))
        norms = calls.start(trainers.norm.call())

A nursery: ``open -> closing -> closed``. It is closing from the first failure of one of its calls, or of its block, on:
that cancels the calls that are not done. The block ends when no rank runs any of its calls.
"""

from __future__ import annotations

import functools
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from meshrt.errors import CallCancelled, UsageError
from meshrt.mesh.call import AnyCall, StreamCall
from meshrt.mesh.future import AnyFuture, Future
from meshrt.mesh.several import all_ended, wait

if TYPE_CHECKING:
    import asyncio

__all__ = ["Nursery", "nursery"]

C = TypeVar("C", bound=AnyCall)


def nursery() -> Nursery:
    """Return a context manager, for ``with`` and ``async with``, whose calls end with its block.

    When one of its calls fails, or the block raises, the others are cancelled (`Future.cancel`). The block ends when
    all ranks have answered, or have dropped the call; Ctrl-C ends it at once. On an event loop a failure cancels what
    the block awaits, too.

    Raises:
        BaseExceptionGroup: At the end of the block: the failures of its calls, behind that of the block if that has
            raised. An error of the block alone goes on as it is.
    """
    return Nursery()


class Nursery:
    """See `nursery`. `start` may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[AnyCall] = []
        self._futures: list[AnyFuture] = []
        self._begun = self._closing = self._closed = False
        #: The asyncio task in the block, and its loop.
        self._inside: tuple[asyncio.Task[object], asyncio.AbstractEventLoop] | None = None
        #: The task was cancelled because a call had failed.
        self._cancelled_block = False

    def start(self, call: C) -> C:
        """Make a call end with the block, and return it. When the nursery is closing, the call is cancelled at once.

        Args:
            call: What ``call()``, ``call_one()``, ``choose()`` or ``stream()`` has returned.
        Raises:
            UsageError: The block has not begun, or has ended: the call was cancelled. Or ``call`` is no call.
        """
        if not isinstance(call, StreamCall | Future):
            raise UsageError(
                f"{type(call).__name__} is not a call: expected what call(), call_one(), choose() or stream() returns"
            )
        if not self._begun:
            call.cancel()
            raise UsageError(
                "this nursery is not open as a block: expected `with meshrt.nursery() as calls:`; "
                "the call was cancelled"
            )
        futures = list(call) if isinstance(call, StreamCall) else [call]
        with self._lock:
            closing, closed = self._closing, self._closed
            if not closed:
                self._calls.append(call)
                self._futures += futures
        if closing or closed:
            call.cancel()
        if closed:
            raise UsageError("the block of this nursery has ended and accepts no new calls; the call was cancelled")
        for future in futures:
            # Also while the block does something else.
            future.when_done(functools.partial(self._one_done, future), background=True)
        return call

    def _one_done(self, future: AnyFuture) -> None:
        if future.failing and not self._closing and not isinstance(future.withdrawn, CallCancelled):
            self._cancel()
            inside = self._inside
            if inside is not None:
                task, loop = inside
                loop.call_soon_threadsafe(self._cancel_block, task)

    def _cancel_block(self, task: asyncio.Task[object]) -> None:
        if self._inside is not None and not self._cancelled_block:
            self._cancelled_block = True
            task.cancel()

    def _cancel(self) -> None:
        with self._lock:
            self._closing = True
            calls = tuple(self._calls)
        for call in calls:
            call.cancel()

    def _close(self) -> list[BaseException]:
        """Return the failures of its calls."""
        with self._lock:
            self._closed = self._closing = True
        errors = [future.exception(0) for future in self._futures]
        return [error for error in errors if error is not None and not isinstance(error, CallCancelled)]

    def _raise(self, errors: list[BaseException], block: BaseException | None) -> None:
        if errors:
            count = len(errors)
            text = "a call of the nursery has failed" if count == 1 else f"{count} calls of the nursery have failed"
            raise BaseExceptionGroup(text, [*([] if block is None else [block]), *errors]) from None

    def __enter__(self) -> Self:
        self._begun = True
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._cancel()
            self._closed = True
            return
        try:
            if error is not None:
                self._cancel()
            elif self._futures:
                wait(self._futures).get()
            for ended in all_ended(self._calls):
                ended.get()
        except BaseException:
            self._cancel()
            self._closed = True
            raise
        self._raise(self._close(), error)

    async def __aenter__(self) -> Self:
        import asyncio  # start-up: code that awaits has loaded it

        task = asyncio.current_task()
        if task is not None:
            self._inside = task, asyncio.get_running_loop()
        self._begun = True
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool | None:  # `bool` alone tells checkers that errors end here
        import asyncio  # start-up: as above

        inside, self._inside = self._inside, None
        own = False
        if inside is not None and self._cancelled_block:
            # Somebody else may have cancelled the task, too.
            own = inside[0].uncancel() == 0 and isinstance(error, asyncio.CancelledError)
        try:
            if error is not None:
                self._cancel()
            elif self._futures:
                await wait(self._futures)
            for ended in all_ended(self._calls):
                await ended
        except BaseException:
            self._cancel()
            self._closed = True
            raise
        self._raise(self._close(), None if own else error)
        return own

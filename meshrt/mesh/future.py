"""``Future``: the answer to a call, for threads, event loops and callbacks alike."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, cast

from meshrt.errors import CallTimeout, RankPlace
from meshrt.hooks.facts import Wait
from meshrt.transport.driver import Driver
from meshrt.transport.interrupts import follows_from_interrupt
from meshrt.transport.pending import Pending

__all__ = ["AnyFuture", "Future", "Settled", "WeakFuture", "done"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_UNSET: Any = object()


def _checked(timeout: float | None) -> float | None:
    if timeout is not None and not (timeout >= 0 and math.isfinite(timeout)):
        raise ValueError(f"invalid timeout {timeout}: expected a non-negative, finite number of seconds")
    return timeout


class Future(Pending, Generic[T_co]):
    """A value that will be available later: get it, await it, or add a callback. From any thread, any number of times.

    Made by meshrt only. A time-out does not end the call: ``get`` may be called again.
    """

    __slots__ = ("__weakref__", "_error", "_lock", "_value")
    _driver: Driver

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._lock = threading.Lock()
        self._value: T_co = _UNSET
        self._error: BaseException | None = None

    # -- made by subclasses

    def _produce(self) -> T_co:
        """Return the value, or raise. Called once, by the first reader, when the future is finished."""
        raise NotImplementedError

    def overdue(self, seconds: float) -> CallTimeout:
        """Return the error that names the ranks that have not answered for ``seconds``."""
        return CallTimeout("the operation", seconds, (), 1)

    @property
    def failing(self) -> bool:
        """Whether it is known to fail; its value was not looked at. Any thread."""
        return self._error is not None

    # -- for all users

    def get(self, timeout: float | None = None) -> T_co:
        """Wait and return the value, or raise the error (the same object each time).

        Args:
            timeout: Seconds, >= 0. Time during which a user holds a rank at a breakpoint does not count.
        Raises:
            CallTimeout: A TimeoutError that names the ranks that have not answered.
            ValueError: ``timeout`` is negative or not finite.
        """
        try:
            if not self.finished:
                self._wait_for(None if timeout is None else _checked(timeout))
            return self._settle()
        finally:
            # The error's traceback leads here: both would stay until cycles are collected.
            del self

    result = get

    def _wait_for(self, timeout: float | None) -> None:
        try:
            if not self._driver.wait(self, timeout):
                raise self.overdue(cast(float, timeout))
        finally:
            del self  # as in `get`

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait and return the error, or None. A time-out is returned, not raised."""
        # No error is returned with a traceback of here: that leads to the frame of the caller, who keeps the error.
        if not self.finished:
            timeout = _checked(timeout)
            try:
                self._wait_for(timeout)
            except CallTimeout as error:
                return error.with_traceback(None)
            except Exception as error:  # not of this call: an error that this wait reports to the program
                return error
        failure = self._failure()
        if failure is None or issubclass(type(failure), Exception):
            return failure
        del failure
        try:
            return self._settle()  # type: ignore[return-value]  # it raises
        finally:
            del self  # as in `get`

    @property
    def withdrawn(self) -> BaseException | None:
        """Why its caller does not want it any more; None: it does, as far as is known. Any thread."""
        return self._error

    @property
    def ended(self) -> bool:
        """Whether no rank runs it any more: after a cancellation, or the failure of a rank, others may. Any thread."""
        return self.finished

    def running(self) -> Wait | None:
        """Return the wait for ranks that run it still, although it may be done; None: none is known to. Any thread."""
        return None

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call back when it has `ended`, once or more: on the thread that reads, which must not be blocked."""
        self.when_done(callback, background=False)

    def cancel(self, *, interrupt: bool = False) -> bool:
        """Cancel the call: its answers are no longer needed.

        It fails at once with `CallCancelled`. A rank that has not begun the call does not run it; one that runs an
        ``async def`` endpoint has it cancelled there (``asyncio.CancelledError``); a ``def`` endpoint runs to its end,
        and what it returns is dropped.

        Args:
            interrupt: Interrupt a ``def`` endpoint, too: an exception that is no ``Exception`` is raised there, once,
                as soon as it runs Python code or is in a system call. Only that of the actor that has the main thread
                of its process: the one that was spawned first there; of another one it runs on, and the rank logs a
                warning. A call that was cancelled without, and that a rank
                runs still, may be interrupted afterwards.
        Returns:
            Whether it was cancelled, or its interrupt was sent: False if it is done, or is no call.
        """
        return False

    @property
    def tells(self) -> bool:
        """Whether the thread that is given its error learns of the failure by it."""
        return self.disturbable

    def done(self) -> bool:
        """Whether the value (or the error) has arrived; never waits."""
        if not self.finished:
            self._driver.poll_nowait()
        return self.finished

    def add_done_callback(self, function: Callable[[Future[T_co]], object]) -> None:
        """Call ``function(self)`` when done: on the thread that completes it, or at once. Its errors are logged."""

        def run() -> None:
            try:
                function(self)
            except BaseException:  # a callback must not end the thread that runs it
                logging.getLogger("meshrt").exception("a done-callback raised")

        self.when_done(run, background=True)

    def __await__(self) -> Generator[object, None, T_co]:
        try:
            if not self.finished:
                yield from self._wait_on_loop().__await__()
            return self._settle()
        finally:
            del self  # as in `get`

    async def _wait_on_loop(self) -> None:
        import asyncio  # start-up: code that awaits has loaded it

        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        thread = threading.get_ident()
        changed = asyncio.Event()

        def from_anywhere() -> None:
            if threading.get_ident() == thread:
                changed.set()
            else:
                # The loop may be closed by now: then no task waits.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(changed.set)

        driver = self._driver
        driver.enter_loop(loop)
        driver.alerted.add(from_anywhere)
        driver.waits_for(task, self)
        try:
            self.when_done(from_anywhere, background=False)
            while not self.finished:
                alarm = driver.alarm  # another thread may take it away
                if alarm is not None:
                    alarm(self)
                await changed.wait()
                changed.clear()
        except BaseException as error:
            if not self.finished and follows_from_interrupt(error):
                driver.waits.cancelled.append((self, time.monotonic()))
            raise
        finally:
            driver.waits_for(task, None)
            driver.alerted.discard(from_anywhere)
            driver.leave_loop(loop)
            del self  # as in `get`

    def _failure(self) -> BaseException | None:
        """Return the error, and report it as seen; None: there is a value."""
        if self._value is _UNSET and self._error is None:
            with self._lock:
                if self._value is _UNSET and self._error is None:
                    try:
                        self._value = self._produce()
                    except KeyboardInterrupt:
                        raise  # Ctrl-C is not a result of the call: `get` may be called again
                    except BaseException as error:
                        # Its traceback is of the runtime alone, and leads to the frames of callers.
                        self._error = BaseException.with_traceback(error, None)
        if self._error is not None and self.tells and self._driver.on_error is not None:
            self._driver.on_error(self._error)
        return self._error

    def _settle(self) -> T_co:
        error = self._failure()
        if error is not None:
            try:
                # The same exception object may be raised many times; its traceback must not grow.
                raise BaseException.with_traceback(error, None)
            finally:
                del self, error  # as in `get`
        return self._value

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Never:
            advice = "" if name.startswith("_") else ": .get() waits for its value and returns it"
            raise AttributeError(f"a Future has no attribute {name!r}{advice}", name=name, obj=self)

    def __repr__(self) -> str:
        state = "pending" if not self.finished else "failed" if self._error is not None else "done"
        return f"<Future {state}>"


AnyFuture = Future[Any]
"""A future of which it does not matter what it is of."""


class WeakFuture(Future[T]):
    """A future that its users alone keep: what completes it refers to it weakly. One with a callback is kept."""

    __slots__ = ()

    def when_done(self, callback: Callable[[], None], *, background: bool) -> None:
        """See `Pending.when_done`."""
        if background:
            _kept.add(self)
        super().when_done(callback, background=background)
        if self.finished:
            _kept.discard(self)

    def finish(self) -> None:
        """See `Pending.finish`."""
        super().finish()
        _kept.discard(self)


_kept: set[AnyFuture] = set()


class Settled(Future[T]):
    """A future that other code completes: `resolve` or `reject`.

    Args:
        what: What is under way, for the text of a time-out.
        missing: Returns the ranks that it waits for, where they are known.
    """

    __slots__ = ("_missing", "_what")

    def __init__(
        self, driver: Driver, what: str, missing: Callable[[], tuple[list[RankPlace], int]] | None = None
    ) -> None:
        super().__init__(driver)
        self._what = what
        self._missing = missing

    def resolve(self, value: T) -> None:
        """Complete it with a value; later completions are ignored."""
        if not self.finished:
            self._value = value
            self.finish()
            self._driver.wake()

    def reject(self, error: BaseException) -> None:
        """Complete it with an error; later completions are ignored."""
        if not self.finished:
            self._error = error
            self.finish()
            self._driver.wake()

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`."""
        missing, total = ([], 1) if self._missing is None else self._missing()
        return CallTimeout(self._what, seconds, missing, total)


def done(driver: Driver) -> Future[None]:
    """Return a future that is done already."""
    future: Settled[None] = Settled(driver, "")
    future.resolve(None)
    return future

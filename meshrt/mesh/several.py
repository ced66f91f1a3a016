"""Several futures at once: all of them, the first of them, or each as it is done.

::

    losses, norms = meshrt.gather(trainers.loss.call(), trainers.norm.call()).get()
    done, pending = meshrt.wait(futures, first=2).get(timeout=10)
    for future in meshrt.as_completed(futures): ...

Each of them waits through one driver, so that Ctrl-C, time-outs, failures of ranks and `where` treat it as a call.
"""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from meshrt.errors import CallTimeout, UsageError
from meshrt.hooks.facts import Wait
from meshrt.mesh.call import AnyCall
from meshrt.mesh.future import AnyFuture, Future, WeakFuture
from meshrt.transport.driver import Driver

__all__ = ["Accumulator", "AsCompleted", "all_done", "all_ended", "as_completed", "gather", "wait"]

#: Of what a wait was for, and is not done, so much is looked at for a message; and named there.
_LOOKED_AT = 1000
_NAMED = 5

T = TypeVar("T")
A = TypeVar("A")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@overload
def gather(
    first: Future[A1], second: Future[A2], /, *, return_exceptions: Literal[False] = False
) -> Future[tuple[A1, A2]]: ...


@overload
def gather(
    first: Future[A1], second: Future[A2], /, *, return_exceptions: Literal[True]
) -> Future[tuple[A1 | BaseException, A2 | BaseException]]: ...


@overload
def gather(
    first: Future[A1], second: Future[A2], third: Future[A3], /, *, return_exceptions: Literal[False] = False
) -> Future[tuple[A1, A2, A3]]: ...


@overload
def gather(
    first: Future[A1], second: Future[A2], third: Future[A3], /, *, return_exceptions: Literal[True]
) -> Future[tuple[A1 | BaseException, A2 | BaseException, A3 | BaseException]]: ...


@overload
def gather(
    first: Future[A1],
    second: Future[A2],
    third: Future[A3],
    fourth: Future[A4],
    /,
    *,
    return_exceptions: Literal[False] = False,
) -> Future[tuple[A1, A2, A3, A4]]: ...


@overload
def gather(
    first: Future[A1], second: Future[A2], third: Future[A3], fourth: Future[A4], /, *, return_exceptions: Literal[True]
) -> Future[tuple[A1 | BaseException, A2 | BaseException, A3 | BaseException, A4 | BaseException]]: ...


@overload
def gather(*futures: Future[T], return_exceptions: Literal[False] = False) -> Future[tuple[T, ...]]: ...


@overload
def gather(*futures: Future[T], return_exceptions: bool) -> Future[tuple[T | BaseException, ...]]: ...


def gather(*futures: AnyFuture, return_exceptions: bool = False) -> Future[Any]:
    """Return a future of a tuple: the values of all ``futures``, in their order. It fails with the first that fails.

    The other calls go on then; `Future.cancel` ends them, and `nursery` does so by itself.

    Args:
        return_exceptions: It waits for all instead, and has the errors of calls that have failed among the values.
    Raises:
        UsageError: There is none, or one is no future of meshrt.
    """
    return (_GatheredWithErrors if return_exceptions else _Gathered)(_checked(futures))


def wait(futures: Iterable[Future[T]], first: int | None = None) -> Future[tuple[list[Future[T]], list[Future[T]]]]:
    """Return a future of ``(done, pending)``: two lists, in the order of ``futures``. It does not fail as they do.

    Args:
        futures: Of calls.
        first: How many of them are waited for; None: all.
    Raises:
        UsageError: There is none, or one is no future of meshrt; ``first`` is less than 1 or more than there are.
    """
    parts = _checked(futures)
    count = len(parts) if first is None else first
    if type(count) is not int or not 1 <= count <= len(parts):
        raise UsageError(f"first={first!r}: expected a number of futures, an integer from 1 to {len(parts)}")
    return _Waited(parts, count)


def as_completed(futures: Iterable[Future[T]]) -> AsCompleted[T]:
    """Return ``futures`` in the order in which they are done, for one ``for`` or ``async for``.

    Raises:
        UsageError: One is no future of meshrt.
    """
    parts = list(futures)
    return AsCompleted(_checked(parts) if parts else parts)


def all_done(futures: Sequence[Future[None]]) -> Future[None]:
    """Return a future that is done when all of them are, one or more. It fails then with the first that has failed."""
    return _AllDone(futures)


def all_ended(calls: Iterable[AnyCall]) -> list[Future[None]]:
    """Return futures that are done when no rank runs one of these calls any more, one for each program's links."""
    by_driver: dict[Driver, list[AnyCall]] = {}
    for call in calls:
        by_driver.setdefault(call._driver, []).append(call)
    return [_Ended(driver, calls) for driver, calls in by_driver.items()]


def _checked(futures: Iterable[Future[T]]) -> list[Future[T]]:
    parts = list(futures)
    for part in cast("list[object]", parts):
        if not isinstance(part, Future):
            raise UsageError(
                f"{type(part).__name__} is not a future: expected what call(), call_one() or choose() returns"
            )
    if not parts:
        raise UsageError("there is no future to wait for: expected one or more")
    return parts


def _first_of(pending: Sequence[AnyFuture | AnyCall], seconds: float) -> CallTimeout:
    """Return the error of the first of them; a note names the others."""
    error = pending[0].overdue(seconds)
    named = Counter(each.overdue(seconds).what for each in pending[1 : _LOOKED_AT + 1]).most_common(_NAMED)
    texts = [f"{what} ({count} times)" if count > 1 else what for what, count in named]
    if more := len(pending) - 1 - sum(count for _, count in named):
        texts.append(f"{more} more")
    if texts:
        error.add_note(f"also not done yet: {', '.join(texts)}")
    return error


class _Several(WeakFuture[T]):
    """A wait for parts. As long as it lasts, it is a wait for those that are not done."""

    __slots__ = ("_parts",)
    disturbable = True

    def __init__(self, parts: Sequence[AnyFuture]) -> None:
        super().__init__(parts[0]._driver)
        self._parts = parts

    def _enough(self) -> None:
        self.finish()
        self._driver.wake()

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether one of its parts waits for the rank."""
        return any(part.owed_by(mesh_id, rank) for part in self._parts if not part.finished)

    def awaited(self) -> Wait | None:
        """See `Pending.awaited`: of the first part that is not done."""
        if self.finished:
            return None
        return next((waits for part in self._parts if (waits := part.awaited()) is not None), None)

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`: of the first part that is not done; a note names the others."""
        pending = [part for part in self._parts if not part.finished]
        return _first_of(pending, seconds) if pending else super().overdue(seconds)


class _Counted(_Several[T]):
    """Done when so many of its parts are done; None: all of them."""

    __slots__ = ("_left", "_mutex")

    def __init__(self, parts: Sequence[AnyFuture], count: int | None = None) -> None:
        super().__init__(parts)
        self._left = len(parts) if count is None else count
        self._mutex = threading.Lock()
        _call_each(parts, weakref.WeakMethod(self._one_done))

    def _one_done(self, part: AnyFuture) -> None:
        with self._mutex:
            self._left -= 1
            enough = self._left == 0 or self._is_enough(part)
        if enough:
            self._enough()

    def _is_enough(self, _part: AnyFuture) -> bool:
        return False


def _call_each(parts: Sequence[Future[T]], method: weakref.WeakMethod[Callable[[Future[T]], None]]) -> None:
    """Call a method with each part when it is done, as long as its object is there: parts may last much longer."""

    def tell(part: Future[T]) -> None:
        function = method()
        if function is not None:
            function(part)

    owner = getattr(method(), "__self__", None)
    callbacks = [functools.partial(tell, part) for part in parts]
    weakref.finalize(owner, _forget, parts, callbacks).atexit = False
    for part, callback in zip(parts, callbacks, strict=True):
        # The wait reads the links of one program; those of another one are read in the background.
        part.when_done(callback, background=part._driver is not parts[0]._driver)


def _forget(parts: Sequence[AnyFuture], callbacks: Sequence[Callable[[], None]]) -> None:
    for part, callback in zip(parts, callbacks, strict=True):
        part.forget(callback)


class _Gathered(_Counted[tuple[Any, ...]]):
    """The values of all parts."""

    __slots__ = ()

    def _is_enough(self, part: AnyFuture) -> bool:
        return part.failing

    @property
    def failing(self) -> bool:
        """See `Future.failing`."""
        return self._error is not None or any(part.finished and part.failing for part in self._parts)

    def cancel(self, *, interrupt: bool = False) -> bool:
        """Cancel its parts."""
        cancelled = [part.cancel(interrupt=interrupt) for part in self._parts]
        if self.failing or all(part.finished for part in self._parts):
            self._enough()  # at once: the parts call back later
        return any(cancelled)

    @property
    def withdrawn(self) -> BaseException | None:
        """See `Future.withdrawn`: that of the part with which it fails."""
        failed = (part.withdrawn for part in self._parts if part.finished and part.failing)
        return self._error or next(failed, None)

    @property
    def ended(self) -> bool:
        """See `Future.ended`."""
        return all(part.ended for part in self._parts)

    def when_ended(self, callback: Callable[[], None]) -> None:
        """See `Future.when_ended`."""
        for part in self._parts:
            part.when_ended(callback)

    def running(self) -> Wait | None:
        """See `Future.running`: of the first part that a rank runs still."""
        return next((wait for part in self._parts if (wait := part.running()) is not None), None)

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """As of each wait for parts; when it is done, whether the rank runs one still."""
        if not self.finished:
            return super().owed_by(mesh_id, rank)
        return any(part.owed_by(mesh_id, rank) for part in self._parts if not part.ended)

    def _produce(self) -> tuple[Any, ...]:
        for part in self._parts:
            if part.finished and part.failing:
                part.get()
        return tuple([part.get() for part in self._parts])


class _GatheredWithErrors(_Gathered):
    """The values of all parts, or their errors."""

    __slots__ = ()
    failing = False

    def _is_enough(self, _part: AnyFuture) -> bool:
        return False

    def _produce(self) -> tuple[Any, ...]:
        return tuple([part.get() if (error := part.exception()) is None else error for part in self._parts])


class _AllDone(_Counted[None]):
    """Nothing, or the first error in the order of the parts."""

    __slots__ = ()

    @property
    def failing(self) -> bool:
        """See `Future.failing`."""
        return any(part.failing for part in self._parts)

    def _produce(self) -> None:
        for part in self._parts:
            part.get()


class _Folded(_Gathered, Generic[T]):
    """The values of all parts, folded in their order."""

    __slots__ = ("_combine", "_identity")

    def __init__(self, parts: Sequence[AnyFuture], identity: T, combine: Callable[[T, Any], T]) -> None:
        self._identity = identity
        self._combine = combine
        super().__init__(parts)

    def _produce(self) -> Any:
        try:
            values = super()._produce()
        except BaseException:
            for part in self._parts:  # nobody else has them: the error of the first one stands for all
                part.add_done_callback(Future.exception)
            raise
        return functools.reduce(self._combine, values, self._identity)


class _Waited(_Counted[tuple[list[Future[T]], list[Future[T]]]]):
    """Which parts are done, and which are not."""

    __slots__ = ()

    def _produce(self) -> tuple[list[Future[T]], list[Future[T]]]:
        done = [part.finished for part in self._parts]
        return list(compress(self._parts, done)), list(compress(self._parts, map(operator.not_, done)))


class _Ended(Future[None]):
    """Done when all of some calls have ended."""

    __slots__ = ("_calls", "_mutex")

    def __init__(self, driver: Driver, calls: list[AnyCall]) -> None:
        super().__init__(driver)
        self._calls = calls.copy()
        self._mutex = threading.Lock()
        for call in calls:
            call.when_ended(self._look)

    def _look(self) -> None:
        with self._mutex:
            while self._calls and self._calls[-1].ended:
                self._calls.pop()
            ended = not self._calls
        if ended:
            self.finish()
            self._driver.wake()

    @property
    def tells(self) -> bool:
        """See `Future.tells`: it is a wait for calls."""
        return True

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`: of the first call that a rank runs still."""
        running = [call for call in tuple(self._calls) if not call.ended]
        return _first_of(running, seconds) if running else super().overdue(seconds)

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether a rank runs one of the calls still."""
        return any(call.owed_by(mesh_id, rank) for call in tuple(self._calls) if not call.ended)

    def awaited(self) -> Wait | None:
        """See `Pending.awaited`: of the first call that a rank runs still."""
        found = (call.running() for call in tuple(self._calls) if not call.ended)
        return next((wait for wait in found if wait is not None), None)

    def _produce(self) -> None:
        """Return None: it has no value."""


class _Next(_Several[Future[T]]):
    """The part that is done next."""

    __slots__ = ("_done",)

    def __init__(self, parts: Sequence[Future[T]], done: deque[Future[T]]) -> None:
        super().__init__(parts)
        self._done = done

    def _produce(self) -> Future[T]:
        return self._done.popleft()


class AsCompleted(Generic[T]):
    """Futures in the order in which they are done. Iterate over it once, on one thread or in one task."""

    def __init__(self, parts: Sequence[Future[T]]) -> None:
        self._parts = parts
        self._done: deque[Future[T]] = deque()
        self._mutex = threading.Lock()
        self._next: _Next[T] | None = None
        _call_each(parts, weakref.WeakMethod(self._one_done))

    def _one_done(self, part: Future[T]) -> None:
        with self._mutex:
            self._done.append(part)
            waiting, self._next = self._next, None
        if waiting is not None:
            waiting._enough()

    def _wait(self) -> _Next[T]:
        waiting = _Next(self._parts, self._done)
        with self._mutex:
            if not self._done:
                self._next = waiting
                return waiting
        waiting._enough()
        return waiting

    def __iter__(self) -> Iterator[Future[T]]:
        for _ in self._parts:
            yield self._wait().get()

    async def __aiter__(self) -> AsyncIterator[Future[T]]:
        for _ in self._parts:
            yield await self._wait()


class _Streams(Protocol[P, R_co]):
    """An endpoint of a mesh (`meshrt.mesh.actor_mesh.Endpoint`)."""

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Iterable[Future[R_co]]: ...


class Accumulator(Generic[P, R_co, A]):
    """Calls an endpoint on every rank, and folds what they return in order of arrival (as in Monarch).

    ``Accumulator(counters.value, 0, operator.add).accumulate().get()``. Where the order must be that of the ranks, and
    for large values: `Endpoint.reduce`.

    Args:
        endpoint: Of a mesh.
        identity: What the fold begins with.
        combine: ``combine(so far, value)``.
    """

    def __init__(self, endpoint: _Streams[P, R_co], identity: A, combine: Callable[[A, R_co], A]) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._combine = combine

    def accumulate(self, *args: P.args, **kwargs: P.kwargs) -> Future[A]:
        """Call the endpoint; returns a future of the folded values. It fails with the first rank that fails.

        `Future.cancel` cancels the call on the ranks that have not answered.
        """
        parts = list(self._endpoint.stream(*args, **kwargs))  # they are done in order of arrival
        folded: AnyFuture = _Folded(parts, self._identity, self._combine)
        return folded

"""The futures of calls: each collects the answers of the ranks that were called (`meshrt.mesh.sending`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from meshrt.actor.faults import ended_itself
from meshrt.errors import (
    ActorError,
    CallCancelled,
    CallTimeout,
    MeshError,
    RankPlace,
    RemoteException,
    ResultNotSerializable,
    UsageError,
    one_line,
)
from meshrt.hooks.facts import UnreadError, Wait
from meshrt.hooks.fate import Fate
from meshrt.mesh.future import Future
from meshrt.mesh.remote_errors import actor_error, add_others
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.store.lease import Lease
from meshrt.transport.driver import Driver
from meshrt.transport.outlink import Loss
from meshrt.transport.waiting import Waiting
from meshrt.wire import codec
from meshrt.wire.errors import error_from_wire, failure_of, headline_of
from meshrt.wire.frames import Frame
from meshrt.wire.messages import RESULT
from meshrt.wire.refused import of_type

__all__ = ["AnyCall", "InitCall", "MeshCall", "OneCall", "QuietCall", "StopCall", "StreamCall"]

R = TypeVar("R")
T = TypeVar("T")
#: Ranks of a wait that are named.
_NAMED = 64
#: Most characters of an error in a line.
_HEADLINE = 300
#: Replaces an answer that is not needed any more.
_LOOKED_AT = Frame(RESULT, [0, None], b"")
#: Seconds that an actor has to end after the grace: for `__cleanup__`, and for what it has made.
_LATE = 5.0


class _Called:
    """What was called, for tools that show calls."""

    __slots__ = ()
    _target: Target
    _endpoint: str

    @property
    def mesh_id(self) -> str:
        """The mesh that was called."""
        return self._target.mesh_id

    @property
    def actor(self) -> str:
        """The actor that was called."""
        return self._target.name

    @property
    def endpoint(self) -> str:
        """The endpoint that was called."""
        return self._endpoint

    def _missing(self) -> Iterable[int]:
        """Return the positions of those that have not answered."""
        raise NotImplementedError

    @property
    def _text(self) -> str:
        return f"{self.actor}.{self.endpoint}()"

    def _unanswered(self) -> tuple[list[RankPlace], int]:
        """Return the ranks that have not answered, and how many were asked."""
        return [self._target.place(position) for position in self._missing()], len(self._target.shape)

    def _wait(self, *, any_of_them: bool = False) -> Wait | None:
        missing = list(self._missing())
        if not missing:
            return None  # the last one has just come
        ndslice = self._target.shape.ndslice
        ranks = tuple(ndslice[position] for position in missing[:_NAMED])
        return Wait(self.mesh_id, self.actor, self.endpoint, ranks, len(missing), any_of_them)

    def running(self) -> Wait | None:
        """See `Future.running`: those that have not answered."""
        return self._wait()

    def overdue(self, seconds: float) -> CallTimeout:
        """Return the error that names the ranks that have not answered for ``seconds``."""
        return CallTimeout(self._text, seconds, *self._unanswered())

    def cancel(self, *, interrupt: bool = False) -> bool:
        """Cancel the call, like `Future.cancel`. In a stream, the futures of the ranks that have not answered fail."""
        return self._withdraw(CallCancelled(self._text, *self._unanswered()), interrupt=interrupt)

    def expire(self, seconds: float) -> None:
        """The time that its caller has given it, ``seconds``, has passed."""
        error = self.overdue(seconds)
        error.cancelled = True
        self._withdraw(error)

    def _withdraw(self, error: MeshError, *, interrupt: bool = False) -> bool:
        """Fail with ``error``, and tell the ranks; returns False if it was done."""
        raise NotImplementedError

    def _note_failure(self, driver: Waiting, position: int, frame: Frame, given: int = 0) -> None:
        """Keep the number of the error in this answer until the answer is read.

        Args:
            given: When a caller was given the error of another rank as that of the call (monotonic ns); 0: not yet.
        """
        if driver.on_failure is not None:
            number = failure_of(frame.header[1])
            if number:
                rank, error = self._target.shape.ndslice[position], headline_of(frame.header[1])
                unread = UnreadError(self.mesh_id, self.actor, self.endpoint, rank, one_line(error, _HEADLINE))
                driver.on_failure(number, unread, given)

    def _decoded(self, position: int, frame: Frame) -> object:
        """Return what a rank has answered."""
        if frame.header[1] is None:
            return None
        try:
            return codec.decode(frame.payload, frame.header[1])
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # loading runs user code, which may do anything, even sys.exit
            # The rank has run the endpoint; its result cannot be rebuilt in this process.
            text = f"the result cannot be read here: {codec.text_of(error)}"
            remote = RemoteException(type(error).__name__, text, "")
            raise ResultNotSerializable(self._target.place(position), self._endpoint, remote, error) from error


class _Answers(_Called, Future[T]):
    """The answers of the ranks of a target; finished when all are there, or at the first failure."""

    __slots__ = (
        "_endpoint",
        "_failed",
        "_frames",
        "_given",
        "_left",
        "_lost",
        "_on_ended",
        "_sent",
        "_target",
        "_withdrawn",
        "call_id",
        "kept",
    )
    disturbable = True

    def __init__(self, driver: Driver, target: Target, endpoint: str) -> None:
        super().__init__(driver)
        self._target = target
        self._endpoint = endpoint
        self._sent = time.monotonic_ns()
        self._left = len(target.shape)
        self._frames: list[Frame | None] = [None] * self._left
        #: Those that have raised, the first one first.
        self._failed: list[tuple[int, Frame]] = []
        self._lost: list[Loss] = []
        #: When a caller was given the error of a rank (monotonic ns); 0: not yet.
        self._given = 0
        #: Why its answers are not wanted any more.
        self._withdrawn: MeshError | None = None
        #: Called when it has ended.
        self._on_ended: Callable[[], None] | None = None
        #: Its number in this process.
        self.call_id: int = 0
        #: The parts of its arguments that are in shared memory, until all have answered.
        self.kept: Sequence[Lease] = ()

    def deliver(self, position: int, frame: Frame) -> None:
        """An answer has come (`meshrt.transport.outlink.Receiver`)."""
        if frame.kind == RESULT:
            self._frames[position] = _LOOKED_AT if self.failing else frame
            self._left -= 1
            if not self._left:
                self.finish()
        else:
            self._failed.append((position, frame))
            if self._given or not self.finished:
                self._note_failure(self._driver, position, frame, self._given)
            self._fail()
        self._let_go()

    def lose(self, losses: Sequence[Loss]) -> None:
        """Ranks will not answer (`meshrt.transport.outlink.Receiver`)."""
        self._lost += losses
        self._fail()
        self._let_go()

    @property
    def failing(self) -> bool:
        """See `Future.failing`."""
        return bool(self._failed or self._lost or self._withdrawn or self._error)

    @property
    def withdrawn(self) -> BaseException | None:
        """See `Future.withdrawn`."""
        return self._withdrawn

    @property
    def ended(self) -> bool:
        """See `Future.ended`."""
        return self._left == len(self._failed) + len(self._lost)

    def when_ended(self, callback: Callable[[], None]) -> None:
        """See `Future.when_ended`."""
        self._on_ended = callback
        if self.ended:
            callback()

    def _withdraw(self, error: MeshError, *, interrupt: bool = False) -> bool:
        self._driver.refuse_if_forked()
        with self._lock:
            again = self.finished
            if again and (self._withdrawn is None or self.ended or not interrupt):
                return False
            self._withdrawn = self._withdrawn or error
        if not again:
            self._fail()
            self._driver.wake()
        self._target.cancel(self._driver, self.call_id, interrupt=interrupt)
        return True

    def _fail(self) -> None:
        # The others' results are not read any more and may be large; the user may keep this, or its error, for long.
        self._frames = [frame and _LOOKED_AT for frame in self._frames]
        self.finish()

    def _let_go(self) -> None:
        """Drop what was kept, when all have answered or are lost: it is not read; the error may be kept for long."""
        if (self.kept or self._on_ended is not None) and self.ended:
            self.kept = ()
            if self._on_ended is not None:
                self._on_ended()

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether the rank was called and has not answered."""
        position = self._target.position(mesh_id, rank)
        return position is not None and self._frames[position] is None

    def _missing(self) -> Iterable[int]:
        return [position for position, frame in enumerate(self._frames) if frame is None]

    def awaited(self) -> Wait | None:
        """See `Pending.awaited`."""
        return None if self.finished else self._wait()

    def _check(self) -> None:
        """Raise the failure, if there is one."""
        error = self._withdrawn
        if error is None and (error := self._error_of_ranks()) is not None:
            self._given = time.monotonic_ns()
        if error is not None:
            error.sent = self._sent
            raise error

    def _error_of_ranks(self) -> MeshError | None:
        if self._failed:
            (position, frame), *further = self._failed
            error = remote_error(self._target.place(position), self._endpoint, frame)
            if isinstance(error, ActorError):
                also = (
                    (self._target.place(other), frame) for other, frame in sorted(further, key=lambda each: each[0])
                )
                add_others(error, also)
            return error
        if self._lost:
            # In the order of the ranks, not in the order in which their ends were noticed.
            losses = sorted(self._known_losses(), key=lambda loss: loss.position)
            # A rank that was stopped after others had died is not the cause of the failure.
            (position, fate, sent), *also_lost = [loss for loss in losses if loss.fate.kind != "stopped"] or losses
            others = [self._target.place(loss.position) for loss in also_lost]
            return fate.error(self._target.place(position), self._endpoint, may_have_run=sent, others=others)
        return None

    def _known_losses(self) -> Collection[Loss]:
        """Include those that the reading thread has found but not reported yet: new calls already fail by them."""
        losses = {loss.position: loss for loss in self._lost}
        for position, fate in enumerate(self._target.fates()):
            if fate is not None and self._frames[position] is None and position not in losses:
                losses[position] = Loss(position, fate, sent=True)
        return losses.values()

    def _load(self, position: int) -> object:
        frame = self._frames[position]
        return None if frame is None else self._decoded(position, frame)

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`."""
        error = super().overdue(seconds)
        error.sent = self._sent
        return error


class MeshCall(_Answers[ValueMesh[Any]]):
    """The answers of all ranks, as a `ValueMesh`."""

    __slots__ = ()

    def _produce(self) -> ValueMesh[Any]:
        self._check()
        values = [self._load(position) for position in range(len(self._frames))]
        self._frames = [None] * len(values)
        return ValueMesh(self._target.shape, values)


class OneCall(_Answers[Any]):
    """The answer of a single rank."""

    __slots__ = ()

    def _produce(self) -> object:
        self._check()
        value = self._load(0)
        self._frames = [None]
        return value


class InitCall(_Answers[None]):
    """Done when every ``__init__`` has run."""

    __slots__ = ("setup",)

    def __init__(self, driver: Driver, target: Target, endpoint: str) -> None:
        super().__init__(driver, target, endpoint)
        #: What runs before the first actor of a rank.
        self.setup: Callable[[], object] | None = None

    @property
    def _text(self) -> str:
        name = getattr(self.setup, "__name__", "setup")
        return super()._text if self.setup is None else f"{super()._text}, or the set-up {name}() before it"

    def _produce(self) -> None:
        self._check()

    def cancel(self, *, interrupt: bool = False) -> bool:
        """An actor that is being built, or stopped, is not left half-way."""
        return False


class QuietCall(InitCall):
    """An INIT whose wait is not to be interrupted."""

    __slots__ = ()
    disturbable = False


class StopCall(QuietCall):
    """A STOP: done when the actor has ended. If it has a grace, it expires: what runs then is ended."""

    __slots__ = ("_cut",)

    def __init__(self, driver: Driver, target: Target, endpoint: str) -> None:
        super().__init__(driver, target, endpoint)
        #: The grace, once that is over.
        self._cut: float | None = None

    def expire(self, seconds: float) -> None:
        """The grace is over: tell the ranks. If they do not end the actor even so, fail."""
        if self._cut is None:
            self._cut = seconds
            self._target.cut(self._driver, self.call_id)
            self._driver.expiry.add(self, _LATE)
            return
        with self._lock:
            if self.finished:
                return
            error = self._withdrawn = self.overdue(self._cut + seconds)
        error.over = True
        error.add_note(
            "the running code cannot be interrupted: it is C code, is not on the main thread, or catches SystemExit; "
            "the actor ends when this code returns, or with its process: mesh.stop()"
        )
        self._fail()
        self._driver.wake()


class _OneOfMany(Future[R]):
    """One answer of a stream, in order of arrival."""

    __slots__ = ("_stream",)
    disturbable = True

    def __init__(self, driver: Driver, stream: StreamCall[R]) -> None:
        super().__init__(driver)
        self._stream = stream

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether the rank was called and has not answered."""
        return self._stream.owed_by(mesh_id, rank)

    def awaited(self) -> Wait | None:
        """See `Pending.awaited`."""
        return None if self.finished else self._stream.awaited()

    @property
    def failing(self) -> bool:
        """See `Future.failing`."""
        return self._error is not None or self._stream.fails(self)

    def cancel(self, *, interrupt: bool = False) -> bool:
        """Cancel the call, with all futures that are not done: which rank would answer by this one is not known."""
        return (not self.finished or self.withdrawn is not None) and self._stream.cancel(interrupt=interrupt)

    @property
    def ended(self) -> bool:
        """See `Future.ended`: no rank runs the call any more."""
        return self._stream.ended

    def when_ended(self, callback: Callable[[], None]) -> None:
        """See `Future.when_ended`."""
        self._stream.when_ended(callback)

    def running(self) -> Wait | None:
        """See `Future.running`."""
        return self._stream.running()

    def _produce(self) -> R:
        return self._stream.take(self)

    def withdraw(self, error: MeshError) -> None:
        """Fail with ``error``: what comes is not wanted any more."""
        with self._lock:
            if self.finished:
                return
            self._error = error
        self.finish()

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`."""
        return self._stream.overdue(seconds)


class StreamCall(_Called, Generic[R]):
    """A future for each answer, in order of arrival. Iterate over it once: ``for``, or ``async for``.

    A future of ``for`` may have to be waited for; one of ``async for`` is done.
    """

    def __init__(self, driver: Driver, target: Target, endpoint: str) -> None:
        self._target = target
        self._endpoint = endpoint
        self._futures: list[_OneOfMany[R]] = [_OneOfMany(driver, self) for _ in range(len(target.shape))]
        self._waiting = deque(self._futures)
        self._arrived: dict[int, tuple[int, Frame | Fate, bool]] = {}
        self._answered: set[int] = set()
        #: As in `_Answers`.
        self.kept: Sequence[Lease] = ()
        self.call_id: int = 0
        self._on_ended: Callable[[], None] | None = None
        self._driver = driver

    def __iter__(self) -> Iterator[Future[R]]:
        return iter(self._futures)

    async def __aiter__(self) -> AsyncIterator[Future[R]]:
        for future in self._futures:
            if not future.finished:
                await future._wait_on_loop()
            yield future

    def __len__(self) -> int:
        return len(self._futures)

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether the rank was called and has not answered."""
        position = self._target.position(mesh_id, rank)
        return position is not None and position not in self._answered

    def _missing(self) -> Iterable[int]:
        return [position for position in range(len(self._futures)) if position not in self._answered]

    def awaited(self) -> Wait | None:
        """Return which ranks have not answered; None: all have."""
        return self._wait(any_of_them=True)

    def done(self) -> bool:
        """Whether every rank has answered, or will not; checks only what has arrived, never waits."""
        return all(future.done() for future in self._futures)

    def when_done(self, callback: Callable[[], None], *, background: bool) -> None:
        """Run ``callback`` when every rank has answered, or will not."""
        self._futures[-1].when_done(callback, background=background)  # they are completed in this order

    def deliver(self, position: int, frame: Frame) -> None:
        """An answer has come."""
        self._arrive(position, frame, True)

    def lose(self, losses: Sequence[Loss]) -> None:
        """Ranks will not answer."""
        for position, fate, sent in losses:
            self._arrive(position, fate, sent)

    def _arrive(self, position: int, what: Frame | Fate, sent: bool) -> None:
        future = self._waiting.popleft()
        if isinstance(what, Frame) and what.kind != RESULT:
            self._note_failure(future._driver, position, what)
        self._answered.add(position)
        if not future.finished:  # else it was withdrawn
            self._arrived[id(future)] = (position, what, sent)
            future.finish()
        if not self._waiting:
            self.kept = ()
            if self._on_ended is not None:
                self._on_ended()

    @property
    def ended(self) -> bool:
        """See `Future.ended`."""
        return len(self._answered) == len(self._futures)

    def when_ended(self, callback: Callable[[], None]) -> None:
        """See `Future.when_ended`."""
        self._on_ended = callback
        if self.ended:
            callback()

    @property
    def finished(self) -> bool:
        """Whether every rank has answered, or will not, as far as was read."""
        return self._futures[-1].finished

    def _withdraw(self, error: MeshError, *, interrupt: bool = False) -> bool:
        self._driver.refuse_if_forked()
        waiting = [future for future in self._waiting if not future.finished]
        for future in waiting:
            future.withdraw(error)
        if not waiting and not (interrupt and self._waiting):
            return False
        self._driver.wake()
        self._target.cancel(self._driver, self.call_id, interrupt=interrupt)
        return True

    def fails(self, future: _OneOfMany[R]) -> bool:
        """Whether what arrived for this future is an error."""
        _, what, _ = self._arrived.get(id(future), (0, None, False))
        return isinstance(what, Fate) or (what is not None and what.kind != RESULT)

    def take(self, future: _OneOfMany[R]) -> R:
        """Return what arrived for this future, or raise it."""
        position, what, sent = self._arrived[id(future)]
        place = self._target.place(position)
        if isinstance(what, Fate):
            raise what.error(place, self._endpoint, may_have_run=sent)
        if what.kind != RESULT:
            raise remote_error(place, self._endpoint, what)
        value = self._decoded(position, what)
        del self._arrived[id(future)]
        return cast(R, value)


AnyCall = Future[Any] | StreamCall[Any]
"""What a call has returned."""


def remote_error(place: RankPlace, endpoint: str, frame: Frame) -> MeshError:
    """Make the exception that an ERROR frame carries."""
    _, chain, lengths, kind = frame.header
    if kind in ("stopped", "cancelled"):
        return Fate("stopped").error(place, endpoint, may_have_run=kind == "cancelled")
    remote = error_from_wire(chain)
    if kind in ("ended", "ending"):
        return ended_itself(place, remote, endpoint, may_have_run=kind == "ending")
    if kind == "exists":
        return UsageError(remote.message)
    exception = None
    if lengths:
        try:
            exception = codec.decode(frame.payload, lengths)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # Its class needs other arguments, or lives only there: the data says what happened.
            exception = None
    if kind == "result":
        return of_type(ResultNotSerializable(place, endpoint, remote, exception), exception)
    error = actor_error(place, "__init__" if kind == "init" else endpoint, remote, exception)
    for note in remote.notes:
        error.add_note(note)
    return error

"""One call on a mesh: it is pickled once, sent to every rank, and collects the answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgpack

from meshrt.errors import (
    ActorError,
    ArgumentNotSerializable,
    CallTimeout,
    MeshError,
    RankPlace,
    RemoteException,
    ResultNotSerializable,
    UsageError,
)
from meshrt.hooks.facts import Wait
from meshrt.hooks.fate import Fate
from meshrt.hooks.table import hooks
from meshrt.mesh.future import Future
from meshrt.mesh.remote_errors import actor_error, add_others
from meshrt.mesh.room import refuse_if_busy
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.store.lease import Lease
from meshrt.store.packing import Parcel
from meshrt.store.refs import mentions, references_exist
from meshrt.store.unsent import Unsent
from meshrt.transport.driver import Driver
from meshrt.transport.link import kept
from meshrt.transport.outlink import Loss, OutLink, Receiver
from meshrt.transport.process import ProcessRuntime, current_runtime
from meshrt.transport.threads import on_event_loop
from meshrt.transport.waiting import Waiting
from meshrt.wire import codec
from meshrt.wire.errors import error_from_wire, failure_of
from meshrt.wire.frames import Buffer, Frame, split_frames, split_packed
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CALL, INIT, NO_REPLY, RESULT, STOP, STORED

__all__ = [
    "MeshCall",
    "OneCall",
    "QuietCall",
    "StreamCall",
    "broadcast",
    "pack_init",
    "send_call",
    "send_init",
    "send_stop",
]

R = TypeVar("R")
T = TypeVar("T")
#: The future of a call.
C = TypeVar("C", bound="_Sent")
_NO_ARGUMENTS = Parcel(*codec.encode(((), {})))
#: Shared by all threads: it packs integers and lists of them here, in one piece of C.
_pack = msgpack.Packer().pack
#: Ranks of a wait that are named.
_NAMED = 64
#: Replaces an answer that is not needed any more.
_LOOKED_AT = Frame(RESULT, [0, None], b"")


class _Sent(Receiver, Protocol):
    """The future of a call: what is to have the answers, and keeps the arguments."""

    kept: Sequence[Lease]


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

    def _wait(self, *, any_of_them: bool = False) -> Wait | None:
        missing = list(self._missing())
        if not missing:
            return None  # the last one has just come
        ndslice = self._target.shape.ndslice
        ranks = tuple(ndslice[position] for position in missing[:_NAMED])
        return Wait(self.mesh_id, self.actor, self.endpoint, ranks, len(missing), any_of_them)

    def overdue(self, seconds: float) -> CallTimeout:
        """Return the error that names the ranks that have not answered for ``seconds``."""
        places = [self._target.place(position) for position in self._missing()]
        return CallTimeout(f"{self.actor}.{self.endpoint}()", seconds, places, len(self._target.shape))

    def _note_failure(self, driver: Waiting, frame: Frame) -> None:
        """Keep the number of the error in this answer until the answer is read."""
        if driver.on_failure is not None:
            number = failure_of(frame.header[1])
            if number:
                driver.on_failure(number, (self.mesh_id, self.actor, self.endpoint))

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

    __slots__ = ("_endpoint", "_failed", "_frames", "_left", "_lost", "_sent", "_target", "kept")
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
        #: The parts of its arguments that are in shared memory, until all have answered.
        self.kept: Sequence[Lease] = ()

    def deliver(self, position: int, frame: Frame) -> None:
        """An answer has come (`meshrt.transport.outlink.Receiver`)."""
        if frame.kind == RESULT:
            self._frames[position] = _LOOKED_AT if self._failing else frame
            self._left -= 1
            if not self._left:
                self.finish()
        else:
            self._failed.append((position, frame))
            if not self.finished:
                self._note_failure(self._driver, frame)
            self._fail()
        self._let_go()

    def lose(self, losses: Sequence[Loss]) -> None:
        """Ranks will not answer (`meshrt.transport.outlink.Receiver`)."""
        self._lost += losses
        self._fail()
        self._let_go()

    @property
    def _failing(self) -> bool:
        return bool(self._failed or self._lost)

    def _fail(self) -> None:
        # The others' results are not read any more and may be large; the user may keep this, or its error, for long.
        self._frames = [frame and _LOOKED_AT for frame in self._frames]
        self.finish()

    def _let_go(self) -> None:
        """Drop what was kept, when all have answered or are lost: it is not read; the error may be kept for long."""
        if self.kept and self._left == len(self._failed) + len(self._lost):
            self.kept = ()

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
        error = self._error_of_ranks()
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

    __slots__ = ()

    def _produce(self) -> None:
        self._check()


class QuietCall(InitCall):
    """An INIT or a STOP whose wait is not to be interrupted."""

    __slots__ = ()
    disturbable = False


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

    def _produce(self) -> R:
        return self._stream.take(self)

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`."""
        return self._stream.overdue(seconds)


class StreamCall(_Called, Generic[R]):
    """A future for each answer, the first to come first. Iterate over it once."""

    def __init__(self, driver: Driver, target: Target, endpoint: str) -> None:
        self._target = target
        self._endpoint = endpoint
        self._futures: list[_OneOfMany[R]] = [_OneOfMany(driver, self) for _ in range(len(target.shape))]
        self._waiting = deque(self._futures)
        self._arrived: dict[int, tuple[int, Frame | Fate, bool]] = {}
        self._answered: set[int] = set()
        #: As in `_Answers`.
        self.kept: Sequence[Lease] = ()

    def __iter__(self) -> Iterator[Future[R]]:
        return iter(self._futures)

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
        """Whether every rank has answered, or will not; looks at what has arrived, never waits."""
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
        if not self._waiting:
            self.kept = ()
        if isinstance(what, Frame) and what.kind != RESULT:
            self._note_failure(future._driver, what)
        self._answered.add(position)
        self._arrived[id(future)] = (position, what, sent)
        future.finish()

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


def remote_error(place: RankPlace, endpoint: str, frame: Frame) -> MeshError:
    """Make the exception that an ERROR frame carries."""
    _, chain, lengths, kind = frame.header
    if kind in ("stopped", "cancelled"):
        return Fate("stopped").error(place, endpoint, may_have_run=kind == "cancelled")
    remote = error_from_wire(chain)
    if kind == "exists":
        return UsageError(remote.message)
    if kind == "result":
        return ResultNotSerializable(place, endpoint, remote)
    exception = None
    if lengths:
        try:
            exception = codec.decode(frame.payload, lengths)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # Its class needs other arguments, or lives only there: the data says what happened.
            exception = None
    error = actor_error(place, "__init__" if kind == "init" else endpoint, remote, exception)
    for note in remote.notes:
        error.add_note(note)
    return error


# -- sending


class _Receivers:
    """The receivers of a message to a target; looked up if a part of it goes into shared memory."""

    def __init__(self, runtime: ProcessRuntime, target: Target) -> None:
        self._runtime = runtime
        self._target = target
        #: The processes that it was shared with.
        self._pids: set[int] | None = None

    def __call__(self) -> list[Identity] | None:
        driver = self._runtime.driver
        found = driver.receivers(self._target.links(driver), block=not on_event_loop())
        self._pids = None if found is None else {receiver.pid for receiver in found}
        return found

    def only(self, parcel: Parcel) -> set[int] | None:
        """Return the processes that can use it: not one that has replaced a receiver since."""
        return None if parcel.loans is None else self._pids


def _send(
    target: Target,
    runtime: ProcessRuntime,
    frame: list[Buffer],
    call_id: int,
    receiver: Receiver | None,
    only: Collection[int] | None = None,
    unsent: Unsent | None = None,
) -> None:
    driver = runtime.driver
    send = driver.send
    written = True
    driver.shield.close()
    try:
        outs = target.links(driver)
        if len(frame) > 1 and len(outs) > 1 and on_event_loop() and any(map(OutLink.waiting_bytes, outs)):
            frame = [kept(part) for part in frame]  # one copy for all queues, not one for each
        if unsent is not None:
            unsent.sent()
        for position, out in enumerate(outs):
            written = send(out, frame, call_id, receiver, position, only) and written
    finally:
        driver.shield.open()
    if not written:
        driver.queues.settle(outs, frame, block=not on_event_loop())


def send_call(
    target: Target,
    endpoint: str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    kind: Callable[[Driver, Target, str], C],
) -> C:
    """Send a CALL and return its future: ``kind`` is `MeshCall`, `OneCall` or `StreamCall`."""
    runtime = current_runtime()
    if runtime.driver.full:
        refuse_if_busy(target, endpoint, runtime.driver)
    call_id = next(runtime.call_ids)
    receivers = _Receivers(runtime, target)
    with Unsent() as unsent:
        parcel = _encode_arguments(target, endpoint, args, kwargs, receivers, unsent)
        frame = _call_frame(target, endpoint, parcel, call_id, 0)
        receiver = kind(runtime.driver, target, endpoint)
        receiver.kept = parcel.kept
        if hooks.message_sent:
            hooks.run(hooks.message_sent, call_id)
        _send(target, runtime, frame, call_id, receiver, receivers.only(parcel), unsent)
    if hooks.call_sent:
        hooks.run(hooks.call_sent, receiver)
    return receiver


def broadcast(target: Target, endpoint: str, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Send a CALL that is not answered; an exception is reported by the root."""
    runtime = current_runtime()
    if runtime.driver.full:
        refuse_if_busy(target, endpoint, runtime.driver)
    call_id = next(runtime.call_ids)

    receivers = _Receivers(runtime, target)

    def known() -> list[Identity]:
        found = receivers()
        if found is None and references_exist():
            raise UsageError(
                f"{target.name}.{endpoint}.broadcast() on an event loop, before the actor was built: it is not known "
                "then when a reference has arrived; await the actor first"
            )
        return found or []

    with Unsent() as unsent:
        parcel = _encode_arguments(target, endpoint, args, kwargs, known, unsent, answered=False)
        frame = _call_frame(target, endpoint, parcel, call_id, NO_REPLY)
        if hooks.message_sent:
            hooks.run(hooks.message_sent, call_id)
        _send(target, runtime, frame, call_id, None, receivers.only(parcel), unsent)


def _call_frame(target: Target, endpoint: str, parcel: Parcel, call_id: int, flags: int) -> list[Buffer]:
    parts, lengths, loans, _ = parcel
    # The header as msgpack.packb([call_id, endpoint, view, lengths, flags]), its constant middle packed once.
    if loans is None:
        header = b"".join((b"\x95", _pack(call_id), target.middle(endpoint), _pack(lengths), _pack(flags)))
        return split_packed(CALL, header, parts)
    header = b"".join((b"\x96", _pack(call_id), target.middle(endpoint), *map(_pack, (lengths, flags, loans))))
    return split_packed(CALL | STORED, header, parts)


def _encode_arguments(
    target: Target,
    endpoint: str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    receivers: Callable[[], list[Identity] | None],
    unsent: Unsent,
    *,
    answered: bool = True,
) -> Parcel:
    if not args and not kwargs:
        return _NO_ARGUMENTS
    try:
        parcel: Parcel = current_runtime().store.encode(
            (args, kwargs), "argument", receivers, unsent=unsent, answered=answered
        )
        return parcel
    except codec.EncodeError as error:
        raise ArgumentNotSerializable(_name_culprit(target, endpoint, args, kwargs, error)) from error.__cause__


def _name_culprit(
    target: Target, endpoint: str, args: tuple[object, ...], kwargs: dict[str, object], error: codec.EncodeError
) -> str:
    named = [(f"argument {index + 1}", value) for index, value in enumerate(args)]
    named += [(f"argument {name!r}", value) for name, value in kwargs.items()]
    for label, value in named:
        try:
            with mentions():
                codec.encode(value)
        except codec.EncodeError as own:
            return f"{target.name}.{endpoint}(): {label}: {own}"
    return f"{target.name}.{endpoint}(): {error}"


def pack_init(
    target: Target, cls: type, args: tuple[object, ...], kwargs: dict[str, object], setup: Callable[[], object] | None
) -> Parcel:
    """Pickle what an actor is built from. Raises ArgumentNotSerializable."""
    store = current_runtime().store

    def unknown() -> None:
        # Its ranks may not be born yet, and restarted ones are sent it once more: nothing goes into shared memory.
        store.wait_until_served()

    try:
        parcel: Parcel = store.encode((setup, cls, args, kwargs), "argument", unknown, unsent=Unsent())
        return parcel
    except codec.EncodeError as error:
        raise ArgumentNotSerializable(_name_culprit(target, "__init__", args, kwargs, error)) from error.__cause__


def send_init(
    target: Target, class_name: str, packed: Parcel, kind: Callable[[Driver, Target, str], InitCall] = InitCall
) -> InitCall:
    """Send an INIT: build the actor on every rank of the target."""
    runtime = current_runtime()
    call_id = next(runtime.call_ids)
    parts, lengths, loans, kept = packed
    receiver = kind(runtime.driver, target, "__init__")
    receiver.kept = kept
    header = [call_id, class_name, target.view, lengths]
    frame = split_frames(INIT, header, parts) if loans is None else split_frames(INIT | STORED, [*header, loans], parts)
    _send(target, runtime, frame, call_id, receiver)
    return receiver


def send_stop(target: Target, why: str = "") -> InitCall:
    """Send a STOP: end the actor behind what was sent before. ``why``: the error that is the reason."""
    runtime = current_runtime()
    call_id = next(runtime.call_ids)
    receiver = QuietCall(runtime.driver, target, "stop")
    _send(target, runtime, split_frames(STOP, [call_id, why], []), call_id, receiver)
    return receiver

"""Sending what calls an actor: it is pickled once, and sent to every rank of the target."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

import msgpack

from meshrt.actor.context import current_call
from meshrt.actor.replacing import Shipped
from meshrt.errors import UsageError
from meshrt.hooks.table import hooks
from meshrt.mesh.call import InitCall, MeshCall, StopCall
from meshrt.mesh.future import Future
from meshrt.mesh.room import refuse_if_busy
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.store.lease import Lease
from meshrt.store.packing import Parcel
from meshrt.store.refs import mentions, references_exist
from meshrt.store.unsent import Unsent
from meshrt.transport.driver import Driver
from meshrt.transport.link import kept
from meshrt.transport.outlink import OutLink, Receiver
from meshrt.transport.process import ProcessRuntime, current_runtime
from meshrt.transport.threads import may_wait
from meshrt.wire import codec
from meshrt.wire.frames import Buffer, split_frames, split_packed
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CALL, INIT, NO_REPLY, PORT, STOP, STORED
from meshrt.wire.refused import argument_refused

__all__ = ["broadcast", "pack_init", "send_call", "send_init", "send_rows", "send_stop", "send_to_port"]

#: The future of a call.
C = TypeVar("C", bound="_Sent")
_NO_ARGUMENTS = Parcel(*codec.encode(((), {})))
#: Shared by all threads: it packs integers and lists of them here, in one piece of C.
_pack = msgpack.Packer().pack


class _Sent(Receiver, Protocol):
    """The future of a call: what is to have the answers, and keeps the arguments."""

    kept: Sequence[Lease]
    call_id: int


class _Receivers:
    """The receivers of a message to a target; looked up if a part of it goes into shared memory."""

    def __init__(self, runtime: ProcessRuntime, target: Target) -> None:
        self._runtime = runtime
        self._target = target
        #: The processes that it was shared with.
        self._pids: set[int] | None = None

    def __call__(self) -> list[Identity] | None:
        driver = self._runtime.driver
        found = driver.receivers(self._target.links(driver), block=may_wait())
        self._pids = None if found is None else {receiver.pid for receiver in found}
        return found

    def if_known(self, name: str) -> list[Identity]:
        """Return the receivers of what is not answered; none if they are not known yet. Raises UsageError."""
        found = self()
        if found is None and references_exist():
            raise UsageError(
                f"{name} on an event loop, before the actor was built: the arrival of a reference cannot be "
                "tracked then; await the actor first"
            )
        return found or []

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
    first: int = 0,
) -> None:
    """Send a message to the ranks of a target, which are at the positions from ``first`` on for its receiver."""
    driver = runtime.driver
    send = driver.send
    written = True
    driver.shield.close()
    try:
        outs = target.links(driver)
        if len(frame) > 1 and len(outs) > 1 and not may_wait() and any(map(OutLink.waiting_bytes, outs)):
            frame = [kept(part) for part in frame]  # one copy for all queues, not one for each
        if unsent is not None:
            unsent.sent()
        for position, out in enumerate(outs, first):
            written = send(out, frame, call_id, receiver, position, only) and written
    finally:
        driver.shield.open()
    if not written:
        driver.queues.settle(outs, frame, block=may_wait())


def send_call(
    target: Target,
    endpoint: str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    kind: Callable[[Driver, Target, str], C],
) -> C:
    """Send a CALL and return its future: ``kind`` is `MeshCall`, `OneCall` or `StreamCall`."""
    runtime = target.runtime()
    if runtime.driver.full:
        refuse_if_busy(target, endpoint, runtime.driver)
    call_id = next(runtime.call_ids)
    receivers = _Receivers(runtime, target)
    with Unsent() as unsent:
        parcel = _encode_arguments(target, endpoint, args, kwargs, receivers, unsent)
        frame = _call_frame(target, endpoint, parcel, call_id, 0)
        receiver = kind(runtime.driver, target, endpoint)
        receiver.kept = parcel.kept
        receiver.call_id = call_id
        if hooks.message_sent and target.program is None:
            hooks.run(hooks.message_sent, call_id)
        _send(target, runtime, frame, call_id, receiver, receivers.only(parcel), unsent)
    if hooks.call_sent and target.program is None:
        hooks.run(hooks.call_sent, receiver)
    return receiver


def send_rows(
    target: Target,
    endpoint: str,
    rows: Sequence[tuple[object, ...]],
    kwargs: dict[str, object],
    kind: Callable[[Driver, Target, str], C],
) -> C:
    """As `send_call`, with positional arguments of its own for each rank. All are pickled before the first is sent."""
    runtime = target.runtime()
    if runtime.driver.full:
        refuse_if_busy(target, endpoint, runtime.driver)
    call_id = next(runtime.call_ids)
    ranks = [target.only(position) for position in range(len(target.shape))]
    receiver = kind(runtime.driver, target, endpoint)
    receiver.call_id = call_id
    with contextlib.ExitStack() as stack:
        messages, leases = [], list[Lease]()
        for rank, row in zip(ranks, rows, strict=True):
            unsent, receivers = stack.enter_context(Unsent()), _Receivers(runtime, rank)
            parcel = _encode_arguments(rank, endpoint, row, kwargs, receivers, unsent)
            leases += parcel.kept
            messages.append((_call_frame(rank, endpoint, parcel, call_id, 0), receivers.only(parcel), unsent))
        receiver.kept = leases
        if hooks.message_sent and target.program is None:
            hooks.run(hooks.message_sent, call_id)
        for position, (frame, only, unsent) in enumerate(messages):
            _send(ranks[position], runtime, frame, call_id, receiver, only, unsent, position)
    if hooks.call_sent and target.program is None:
        hooks.run(hooks.call_sent, receiver)
    return receiver


def broadcast(target: Target, endpoint: str, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Send a CALL that is not answered; an exception is reported by the root, or here if it is another program's."""
    runtime = target.runtime()
    if target.program is not None:
        send_call(target, endpoint, args, kwargs, MeshCall).add_done_callback(_log_failure)
        return
    if runtime.driver.full:
        refuse_if_busy(target, endpoint, runtime.driver)
    call_id = next(runtime.call_ids)
    receivers = _Receivers(runtime, target)
    known = functools.partial(receivers.if_known, f"{target.name}.{endpoint}.broadcast()")
    with Unsent() as unsent:
        parcel = _encode_arguments(target, endpoint, args, kwargs, known, unsent, answered=False)
        frame = _call_frame(target, endpoint, parcel, call_id, NO_REPLY)
        if hooks.message_sent:
            hooks.run(hooks.message_sent, call_id)
        _send(target, runtime, frame, call_id, None, receivers.only(parcel), unsent)


def send_to_port(
    target: Target,
    port: bytes,
    value: object,
    call_id: int,
    *,
    error: str,
    asks: bool,
    watch: int,
    receiver: Receiver | None,
) -> int:
    """Send a PORT message.

    Args:
        port: The number of the port, packed.
        error: The exception that ``value`` is, in a line; "": it is a value.
        call_id, receiver: Who wants its answer, if it ``asks`` for one.
        watch: The number of the call that the end of the receiver answers; 0: that is known.
    Returns:
        Its length, bytes.
    Raises:
        ArgumentNotSerializable: ``value`` cannot be pickled.
    """
    runtime = target.runtime()
    receivers = _Receivers(runtime, target)
    known = functools.partial(receivers.if_known, "port.send()")
    with Unsent() as unsent:
        try:
            parcel: Parcel = runtime.store.encode(value, "argument", known, unsent=unsent, answered=False)
        except codec.EncodeError as refused:
            raise argument_refused(f"port.send(): {refused}", refused.__cause__) from refused.__cause__
        parts, lengths, loans, _ = parcel
        # The header as msgpack.packb([call_id, port, lengths, error, asks, watch]), and the loans.
        last = _pack((error, asks, watch))[1:]
        if loans is None:
            frame = split_packed(PORT, b"".join((b"\x96", _pack(call_id), port, _pack(lengths), last)), parts)
        else:
            header = b"".join((b"\x97", _pack(call_id), port, _pack(lengths), last, _pack(loans)))
            frame = split_packed(PORT | STORED, header, parts)
        _send(target, runtime, frame, call_id, receiver, receivers.only(parcel), unsent)
    return sum(map(len, frame))


def _log_failure(future: Future[ValueMesh[Any]]) -> None:
    error = future.exception()
    if error is not None:
        logging.getLogger("meshrt").error("a broadcast to another program failed: %s", error)


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
        store = target.runtime().store
        if store is None:  # the memory of another program is not shared
            return Parcel(*codec.encode((args, kwargs)))
        parcel: Parcel = store.encode((args, kwargs), "argument", receivers, unsent=unsent, answered=answered)
        return parcel
    except codec.EncodeError as error:
        raise argument_refused(
            _name_culprit(target, endpoint, args, kwargs, error), error.__cause__
        ) from error.__cause__


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
    target: Target,
    cls: type,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    setup: Callable[[], object] | None,
    *,
    owned: bool = True,
) -> Parcel:
    """Pickle what an actor is built from. Raises ArgumentNotSerializable. ``owned``: its creator is who calls."""
    store = current_runtime().store

    def unknown() -> None:
        # Its ranks may not be born yet, and restarted ones are sent it once more: nothing goes into shared memory.
        store.wait_until_served()

    try:
        call = current_call()
        creator = call.instance if owned and call is not None else None
        parcel: Parcel = store.encode(
            (setup, Shipped.of(cls), args, kwargs, creator), "argument", unknown, unsent=Unsent()
        )
        return parcel
    except codec.EncodeError as error:
        culprit = _name_culprit(target, "__init__", args, kwargs, error)
        raise argument_refused(culprit, error.__cause__) from error.__cause__


def send_init(
    target: Target,
    class_name: str,
    packed: Parcel,
    kind: Callable[[Driver, Target, str], InitCall] = InitCall,
    singleton: Sequence[str] = (),
) -> InitCall:
    """Send an INIT: build the actor on every rank of the target. ``singleton``: what one is built from."""
    runtime = target.runtime()
    call_id = next(runtime.call_ids)
    parts, lengths, loans, kept = packed
    receiver = kind(runtime.driver, target, "__init__")
    receiver.kept = kept
    header = [call_id, class_name, target.view, lengths, *singleton]
    frame = split_frames(INIT, header, parts) if loans is None else split_frames(INIT | STORED, [*header, loans], parts)
    _send(target, runtime, frame, call_id, receiver)
    return receiver


def send_stop(target: Target, why: str = "", grace: float | None = None) -> StopCall:
    """Send a STOP: end the actor behind what was sent before.

    Args:
        why: The error that is the reason.
        grace: Seconds for what was sent before; None: as long as that takes.
    Raises:
        UsageError: It is an actor of another program.
    """
    if target.program is not None:
        raise UsageError(f"{target.name} belongs to {target.program}; only that program can stop it")
    runtime = target.runtime()
    call_id = next(runtime.call_ids)
    receiver = StopCall(runtime.driver, target, "stop")
    receiver.call_id = call_id
    _send(target, runtime, split_frames(STOP, [call_id, why, grace, target.spawn_id], []), call_id, receiver)
    if grace is not None:
        runtime.driver.expiry.add(receiver, grace)
    return receiver

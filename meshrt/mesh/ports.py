"""Ports: what sends messages to the receiver of a channel (`meshrt.mesh.channels`)."""

from __future__ import annotations

import functools
import logging
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Generic, TypeVar, cast

import msgpack
import msgspec

from meshrt.actor.context import current_call
from meshrt.actor.inboxes import Arrived, Inbox
from meshrt.errors import (
    ArgumentNotSerializable,
    CallTimeout,
    MeshBusy,
    MeshError,
    PortClosed,
    RankPlace,
    UsageError,
    one_line,
)
from meshrt.hooks.facts import Wait
from meshrt.hooks.fate import Fate
from meshrt.mesh.future import Future, Settled
from meshrt.mesh.owner import about
from meshrt.mesh.sending import send_to_port
from meshrt.mesh.target import Target
from meshrt.selection import Shape, Slice
from meshrt.transport.driver import Driver
from meshrt.transport.outlink import Loss
from meshrt.transport.process import ProcessRuntime, current_runtime, has_runtime
from meshrt.transport.queues import LOOP_LIMIT
from meshrt.transport.threads import may_wait
from meshrt.wire import codec
from meshrt.wire.addresses import MeshAddress
from meshrt.wire.exceptions import sendable
from meshrt.wire.frames import Frame
from meshrt.wire.messages import PORT, PORTS
from meshrt.wire.refused import argument_refused

__all__ = ["Port"]

T = TypeVar("T")
#: A sender asks to be told when a message is taken, after so many messages or bytes ...
_STEP, _STEP_BYTES = 64, 64 << 10
#: ... and waits while so many of these are not.
_STEPS = 4
#: Seconds between two looks for what the receiver has answered, while nothing is waited for.
_LOOK = 0.005
#: Seconds after which a wait in `send` is said, once for each port and process.
_SLOW = 10.0
#: Most characters of an exception in a line.
_HEADLINE = 300


class Port(Generic[T]):
    """Sends to one receiver. Any thread, and any process of the program: it is an ordinary argument or result."""

    def __init__(
        self,
        number: str,
        mesh_id: str,
        rank: int,
        address: MeshAddress,
        program: str,
        opener: tuple[str, int, str],
        ranked: bool,
    ) -> None:
        self._number = number
        self._mesh_id = mesh_id
        self._rank = rank
        self._address = address
        self._program = program
        #: Who has opened the channel, as in `meshrt.program.waits`.
        self._opener = opener
        self._ranked = ranked
        self._sender: _Sender | None = None

    def send(self, value: T) -> None:
        """Send a value. What one process sends to a port arrives in that order, as copies.

        Where the receiver does not take its messages, a thread waits. An event loop does not: it is refused when 64 MiB
        have not been taken; see `wait_ready`.

        Raises:
            PortClosed: The receiver is closed.
            SupervisionError: The process of the receiver has ended.
            ArgumentNotSerializable: The value cannot be pickled.
            MeshBusy: On an event loop, or in the process of the receiver itself, and too much has not been taken.
            UsageError: The port is of another program; it is a ranked one, and no call runs here.
        """
        self._send(self._with_rank(value), error="")

    def exception(self, error: BaseException) -> None:
        """Send an exception, which the receiver's ``recv()`` raises. Else as `send`."""
        text = f"{codec.describe(error).removeprefix('builtins.')}: {codec.text_of(error)}"
        try:
            self._send(sendable(error), error=one_line(text, _HEADLINE))
        except ArgumentNotSerializable:
            self._send(MeshError(text), error=one_line(text, _HEADLINE))

    async def wait_ready(self) -> None:
        """Wait until `send` would not block a thread: the receiver takes messages, or is known to have ended.

        In the process of the receiver it never waits, as the task that takes may be this one.
        """
        runtime = self._runtime()
        if self._number not in runtime.inboxes and not self._is_of(runtime):
            await self._sender_in(runtime).room()

    def _with_rank(self, value: object) -> object:
        if not self._ranked:
            return value
        call = current_call()
        if call is None:
            raise UsageError("a ranked port sends the rank of the running call: use it inside an endpoint")
        return call.point.rank, value

    def _send(self, value: object, *, error: str) -> None:
        runtime = self._runtime()
        inbox = runtime.inboxes.get(self._number)
        if inbox is None and self._is_of(runtime):
            raise PortClosed("port.send(): the receiver is closed")
        if inbox is not None:
            _put_here(inbox, self._number, value, error=error)
        else:
            self._sender_in(runtime).send(value, error=error)

    def _runtime(self) -> ProcessRuntime:
        runtime = current_runtime()
        if runtime.program_id != self._program:
            raise UsageError("this port belongs to another program: its receiver cannot be reached from here")
        return runtime

    def _sender_in(self, runtime: ProcessRuntime) -> _Sender:
        if self._sender is None or self._sender.driver is not runtime.driver:
            self._sender = _sender_of(self, runtime)
        return self._sender

    def _is_of(self, runtime: ProcessRuntime) -> bool:
        """Whether its receiver is, or was, in this process."""
        if runtime.is_root:
            return runtime.own_mesh is not None and runtime.own_mesh.mesh_id == self._mesh_id
        return (runtime.mesh_id, runtime.rank) == (self._mesh_id, self._rank)

    def __reduce__(self) -> tuple[object, ...]:
        inbox = current_runtime().inboxes.get(self._number) if has_runtime() else None
        if inbox is not None:
            inbox.passed_on = True
        facts = self._number, self._mesh_id, self._rank, self._address, self._program, self._opener, self._ranked
        return Port, facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Port) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return f"<Port {self._number}>"


def _put_here(inbox: Inbox, number: str, value: object, *, error: str) -> None:
    """Send within one process: as a copy, too. The thread that takes may be the one that sends, so it never waits."""
    try:
        parts, lengths = codec.encode(value)
    except codec.EncodeError as refused:
        raise argument_refused(f"port.send(): {refused}", refused.__cause__) from refused.__cause__
    payload = b"".join(parts)
    if not inbox.count_own(len(payload), LOOP_LIMIT):
        raise UsageError("port.send(): this process has sent 64 MiB to its own port, and nobody receives them")
    taken = functools.partial(inbox.count_own, -len(payload), LOOP_LIMIT)
    if not inbox.put(Arrived(Frame(PORT, [0, number, lengths, error, 0, 0], payload), taken)):
        raise PortClosed("port.send(): the receiver is closed")


# -- sending to another process


class _Sender:
    """What this process sends to one port. Any thread.

    A message in `_STEP` is answered when it is taken. So it is known how much is not, and that costs little. The end of
    the receiver is the answer to ``watch``, whenever that is.
    """

    def __init__(self, port: Port[object], driver: Driver) -> None:
        rank = Shape((), Slice(offset=port._rank, sizes=(), strides=()))
        self._target = Target(port._mesh_id, PORTS, port._address, rank, rank, about)
        self._port: bytes = msgpack.packb(port._number)
        mesh_id, number, actor = port._opener
        self._waits = Wait(mesh_id, actor, "send", (number,), 1, port=True)
        self._receiver = f"{actor} rank {number}".strip() if mesh_id else "the script"
        #: A wait in `send` was long, which was said.
        self._said = False
        self.driver = driver
        self._lock = threading.RLock()  # what is sent may send, too, while it is pickled
        self._error: MeshError | None = None
        self._watched = False
        self._waiting: list[weakref.ref[Settled[None]]] = []
        #: Numbers of the messages whose answers are waited for, and the bytes that were sent with each.
        self._asked: dict[int, int] = {}
        self._count = self._bytes = 0
        self._looked = 0.0

    def send(self, value: object, *, error: str) -> None:
        """See `Port.send`."""
        if not self.finished and not may_wait():
            self.driver.poll_nowait()
            unread = sum(tuple(self._asked.values()))
            if unread >= LOOP_LIMIT:
                raise MeshBusy(self._place(), "send", unread, LOOP_LIMIT, wait="port.wait_ready()")
        elif not self.finished:
            room = self.room()
            if not self._said and isinstance(room.exception(_SLOW), CallTimeout):
                self._said = True
                logging.getLogger("meshrt").warning(
                    "port.send() has waited for %g s: %s has not received the earlier messages", _SLOW, self._receiver
                )
            room.get()
        elif time.monotonic() - self._looked > _LOOK:
            self.driver.poll_nowait()
            self._looked = time.monotonic()
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            self._send(value, error=error)

    def _send(self, value: object, *, error: str) -> None:
        runtime = current_runtime()
        number, watch = next(runtime.call_ids), 0
        out = self._target.links(self.driver)[0]
        if not self._watched:
            self._watched, watch = True, next(runtime.call_ids)
            out.outstanding[watch] = (_Watch(self), 0)
        asks = not self._count % _STEP or self._bytes >= _STEP_BYTES
        if asks:
            self._asked[number] = self._bytes
            self._bytes = 0
        try:
            answer = _Answer(self, number) if asks else None
            sent = send_to_port(
                self._target, self._port, value, number, error=error, asks=asks, watch=watch, receiver=answer
            )
        except BaseException:
            self._asked.pop(number, None)
            if watch:
                self._watched = out.outstanding.pop(watch, None) is None
            raise
        self._count += 1
        self._bytes += sent
        if self._error is not None:  # it was known already that the process has ended
            raise self._error.with_traceback(None)

    @property
    def finished(self) -> bool:
        """Whether the next message may be sent, or never will be."""
        return len(self._asked) < _STEPS or self._error is not None

    def room(self) -> Future[None]:
        """Return a future that is done when the next message may be sent, or never will be."""
        room = _Room(self.driver, self._waits)
        with self._lock:
            self._waiting = [*(each for each in self._waiting if each() is not None), weakref.ref(room)]
        self._tell_waiting()
        return room

    def _tell_waiting(self) -> None:
        if self.finished:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for reference in waiting:
                room = reference()
                if room is not None:
                    room.resolve(None)

    def taken(self, number: int) -> None:
        """A message was taken."""
        self._asked.pop(number, None)
        self._tell_waiting()

    def ended(self, error: MeshError) -> None:
        """The receiver takes nothing any more."""
        self._error = self._error or error
        self._tell_waiting()

    def lost(self, fate: Fate) -> None:
        """The process of the receiver has ended."""
        self.ended(fate.error(self._place(), "send", may_have_run=True))

    def _place(self) -> RankPlace:
        return msgspec.structs.replace(self._target.place(0), actor="port")


class _Room(Settled[None]):
    """The next message may be sent, or never will be."""

    __slots__ = ("_waits",)

    def __init__(self, driver: Driver, waits: Wait) -> None:
        super().__init__(driver, "waiting until the receiver of a port reads its messages")
        self._waits = waits

    def awaited(self) -> Wait | None:
        """See `meshrt.transport.pending.Pending.awaited`."""
        return None if self.finished else self._waits


class _Watch:
    """The end of the receiver. It keeps the sender, which is of one port, until then."""

    kept: Sequence[object] = ()

    def __init__(self, sender: _Sender) -> None:
        self._sender = sender

    def deliver(self, _position: int, _frame: Frame) -> None:
        """See `meshrt.transport.outlink.Receiver`."""
        self._sender.ended(PortClosed("port.send(): the receiver is closed"))

    def lose(self, losses: Sequence[Loss]) -> None:
        """As `deliver`."""
        self._sender.lost(losses[0].fate)


class _Answer(_Watch):
    """The answer to a message, or the end of the receiver before that."""

    def __init__(self, sender: _Sender, number: int) -> None:
        super().__init__(sender)
        self._number = number

    def deliver(self, _position: int, _frame: Frame) -> None:
        """See `meshrt.transport.outlink.Receiver`."""
        self._sender.taken(self._number)


#: By the number of the port; all ports of a number share one, and keep it.
_senders: weakref.WeakValueDictionary[str, _Sender] = weakref.WeakValueDictionary()
_obtaining = threading.Lock()


def _sender_of(port: Port[T], runtime: ProcessRuntime) -> _Sender:
    with _obtaining:
        sender = _senders.get(port._number)
        if sender is None or sender.driver is not runtime.driver:
            sender = _senders[port._number] = _Sender(cast("Port[object]", port), runtime.driver)
    return sender

"""Channels: messages from any process of the program to one receiver, beside the calls.

::

    port, receiver = Channel[int].open()
    trainers.step.broadcast(batch, port)         # on the ranks: port.send(loss)
    for loss in receiver: ...

A port may be an argument, a result, or a part of either. Every copy sends to the same receiver, and what one process
sends stays in order. The receiver stays in the process that has opened the channel.
"""

from __future__ import annotations

import functools
import secrets
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Generic, Self, TypeVar, cast

from meshrt.actor.context import current_call
from meshrt.actor.inboxes import Arrived, Inbox, close_inbox
from meshrt.errors import CallTimeout, MeshError, PortClosed, UsageError
from meshrt.files import RUNTIME_FILES
from meshrt.hooks.facts import Wait
from meshrt.mesh.future import Future, WeakFuture
from meshrt.mesh.own_ranks import script_proc
from meshrt.mesh.ports import Port
from meshrt.transport.driver import Driver
from meshrt.transport.interrupts import called_by_python
from meshrt.transport.process import ProcessRuntime, current_runtime, has_runtime
from meshrt.transport.threads import RuntimeThread
from meshrt.wire import codec

__all__ = ["Channel", "PortReceiver"]

T = TypeVar("T")


class Channel(Generic[T]):
    """Makes ports: ``port, receiver = Channel[int].open()``."""

    @classmethod
    def open(cls, once: bool = False) -> tuple[Port[T], PortReceiver[T]]:
        """Return a port, and the receiver of what is sent to it. In the script or a rank.

        Args:
            once: It is for one message.
        """
        return _open(once=once, ranked=False)

    @classmethod
    def open_ranked(cls, once: bool = False) -> tuple[Port[T], PortReceiver[tuple[int, T]]]:
        """Like `open`, but `recv` returns ``(rank, value)``: the rank of the sender in the mesh that was called."""
        port: Port[T]
        port, receiver = _open(once=once, ranked=True)
        return port, cast("PortReceiver[tuple[int, T]]", receiver)


def _open(*, once: bool, ranked: bool) -> tuple[Port[T], PortReceiver[T]]:
    if not has_runtime() or current_runtime().is_root:
        mesh = script_proc()  # from now on this process listens
        mesh_id, rank, address = mesh.mesh_id, 0, mesh._address
        opener = ("", -1, "")
    else:
        mesh_id, rank, address = current_runtime().mesh_id, current_runtime().rank, current_runtime().own_address
        opener = (mesh_id, rank, "")
    runtime, call = current_runtime(), current_call()
    number, inbox = secrets.token_hex(8), Inbox(once=once, opened=_line())
    runtime.inboxes[number] = inbox
    if call is not None:
        opener = (call.instance.mesh_id, call.base_rank, call.instance.name)
    port: Port[T] = Port(number, mesh_id, rank, address, runtime.program_id, opener, ranked)
    return port, PortReceiver(runtime, number, inbox)


def _line() -> str:
    """Return the line of the user's code that runs."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(RUNTIME_FILES):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


class PortReceiver(Generic[T]):
    """Receives what is sent to a port, in the process that has opened the channel. Any thread.

    It is closed by `close`, at the end of a ``with`` block, or when it is not used any more. Senders are told.
    """

    def __init__(self, runtime: ProcessRuntime, number: str, inbox: Inbox) -> None:
        self._driver = runtime.driver
        self._inbox = inbox
        self._call_later = runtime.tree.call_later
        self._close = functools.partial(close_inbox, runtime, number)
        # Collection may run anywhere, also where locks are held.
        self._collected = weakref.finalize(self, runtime.tree.call_later, 0.0, self._close)
        self._collected.atexit = False

    def recv(self) -> Future[T]:
        """Return a future of the next message: ``get`` it with a time-out, or ``await`` it.

        It raises what ``port.exception`` has sent, and PortClosed when the receiver is closed. A message goes to the
        oldest future that is still used: one that was dropped after a time-out, or when its task was cancelled, takes
        none. In a done-callback on a thread of meshrt, ``get`` raises UsageError.

        Raises:
            ForkedMeshError: In a forked child of the process that has opened the channel.
        """
        self._driver.refuse_if_forked()
        future: _Received[T] = _Received(self._driver, self._inbox, self._call_later)
        self._inbox.give_to(future)
        return future

    def close(self) -> None:
        """Close the receiver: waiting ``recv()`` raise PortClosed, and so does the next ``send`` of each process."""
        self._collected.detach()
        if not self._driver.forked:
            self._close()

    def __iter__(self) -> Iterator[T]:
        """Receive until the receiver is closed."""
        while True:
            try:
                value = self.recv().get()
            except PortClosed:
                return
            yield value

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            try:
                value = await self.recv()
            except PortClosed:
                return
            yield value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a receiver cannot be sent to another process: send the port of the channel")


class _Received(WeakFuture[T]):
    """The next message of a port. One that is dropped when a message has just come gives it back."""

    __slots__ = ("_call_later", "_inbox", "_message")
    disturbable = True

    def __init__(self, driver: Driver, inbox: Inbox, call_later: Callable[[float, Callable[[], None]], None]) -> None:
        super().__init__(driver)
        self._inbox = inbox
        self._call_later = call_later
        self._message: Arrived | None = None

    @called_by_python
    def __del__(self) -> None:
        if self._message is not None:
            self._inbox.give_back(self._message)
            # Collection may run anywhere, also where locks are held.
            self._call_later(0.0, self._inbox.hand_out)

    def arrived(self, message: Arrived) -> None:
        """See `Waiter`."""
        self._message = message
        self._end()

    def closed(self) -> None:
        """See `Waiter`."""
        self._error = PortClosed("port.recv(): the receiver is closed")
        self._end()

    def _end(self) -> None:
        self.finish()
        self._driver.wake()

    def _wait_for(self, timeout: float | None) -> None:
        if isinstance(threading.current_thread(), RuntimeThread):
            raise UsageError(
                "port.recv() cannot wait in a done-callback: the thread of the callback has to receive the message"
            )
        try:
            super()._wait_for(timeout)
        finally:
            del self  # as in `get`: the handler of a time-out may receive

    async def _wait_on_loop(self) -> None:
        import asyncio  # start-up: code that awaits has loaded it

        try:
            await super()._wait_on_loop()
        except asyncio.CancelledError as error:
            # The time-outs of asyncio cancel what waits, and show this error as their cause.
            error.add_note(f"{self._what}: {self._inbox.known()}")
            raise
        finally:
            del self  # as in `get`

    @property
    def _what(self) -> str:
        return f"port.recv() of the channel opened at {self._inbox.opened}"

    def _produce(self) -> T:
        message, self._message = self._message, None
        if message is None:
            raise PortClosed("port.recv(): the receiver is closed")
        frame = message.frame
        try:
            value = codec.decode(frame.payload, frame.header[2])
        except KeyboardInterrupt:
            self._message = message  # `get` may be called again
            raise
        except BaseException as error:  # loading runs user code, which may do anything
            raise MeshError(f"port.recv(): the message cannot be read here: {codec.text_of(error)}") from error
        if frame.header[3] and isinstance(value, BaseException):
            raise value
        return cast(T, value)

    def awaited(self) -> Wait | None:
        """See `meshrt.transport.pending.Pending.awaited`. Who has the port is not known."""
        return None if self.finished else Wait("", "", "recv", (), 0, port=True)

    def overdue(self, seconds: float) -> CallTimeout:
        """See `Future.overdue`."""
        error = CallTimeout(self._what, seconds, (), 1)
        error.known = self._inbox.known()
        return error

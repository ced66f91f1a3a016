"""The port of a call: an endpoint with ``explicit_response_port=True`` answers by it, now or later, from any thread.

A response: ``open -> answered``: by `ResponsePort.send`, by an exception of the endpoint, by the end of the actor, or
as the port was dropped without an answer.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from meshrt.actor.errors import describe_exception
from meshrt.errors import PortClosed, RemoteException
from meshrt.store.store import encode_result
from meshrt.transport.process import current_runtime
from meshrt.wire import codec
from meshrt.wire.errors import error_to_wire
from meshrt.wire.exceptions import sendable
from meshrt.wire.frames import Buffer, pack_header, split_frames
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import ERROR, NO_ERROR, RESULT, STORED

__all__ = ["Response", "ResponsePort"]

_ANSWERED = "was already answered; for several answers, pass a port of a Channel as an argument"


class Response:
    """The answer that a call is owed. Any thread.

    Args:
        caller, call_id: Whose call it is, and its number there.
        answer: Writes an answer to the caller; None: it wants none.
        receivers, site: As of `meshrt.store.store.encode_result`.
        name: Of the actor, and of the endpoint.
    """

    def __init__(
        self,
        caller: Identity,
        call_id: int,
        answer: Callable[[list[Buffer]], None] | None,
        receivers: Callable[[], list[Identity]],
        site: Callable[[], str],
        name: tuple[str, str],
    ) -> None:
        self._caller = caller
        self._call_id = call_id
        self._answer = answer
        self._receivers = receivers
        self._site = site
        actor, self.endpoint = name
        self._what = f"{actor}.{self.endpoint}()"
        self._lock = threading.Lock()
        #: Why it is not open any more; "": it is.
        self._over = ""

    @property
    def is_open(self) -> bool:
        """Whether a caller waits for it."""
        return self._answer is not None and not self._over

    def __str__(self) -> str:
        return f"{self._what}: {'open' if self.is_open else 'over'}"

    def withdraw(self, caller: Identity, call_id: int) -> None:
        """A caller does not want an answer any more; a no-op if it is another one."""
        if (caller, call_id) == (self._caller, self._call_id) and self.take("was cancelled by its caller"):
            self._write(pack_header(ERROR, [call_id, NO_ERROR, [], "withdrawn"]))

    def take(self, why: str = _ANSWERED) -> bool:
        """Whether it was open; it is answered by the caller of this now. ``why``: what later answers are told."""
        with self._lock:
            taken = not self._over
            self._over = self._over or why
        return taken

    def send(self, value: object) -> None:
        """Answer with a value. See `ResponsePort.send`."""
        self._begin()
        try:
            parts, lengths, loans, _ = encode_result(value, self._receivers, self._site)
            if loans is None:
                answer = _joined(split_frames(RESULT, [self._call_id, lengths], parts))
            else:
                answer = _joined(split_frames(RESULT | STORED, [self._call_id, lengths, loans], parts))
        except codec.EncodeError as error:
            self._refuse(RemoteException("TypeError", str(error), ""), "result")
            return
        except BaseException as error:  # the actor is interrupted, or there is no memory for the answer
            self._refuse(describe_exception(error))
            raise
        self._write(answer)

    def fail(self, error: BaseException) -> None:
        """Answer with an exception."""
        self._begin()
        try:
            parts, lengths = codec.encode(sendable(error))
        except (codec.EncodeError, MemoryError, KeyboardInterrupt):  # the last one raised by its own __reduce__
            parts, lengths = [], []  # its text is complete
        described = error_to_wire(describe_exception(error))
        self._write(_joined(split_frames(ERROR, [self._call_id, described, lengths, ""], parts)))

    def dropped(self) -> None:
        """Nothing can answer any more."""
        if self.take():
            text = f"{self._what} has dropped its response port without an answer"
            self._refuse(RemoteException("meshrt.errors.PortClosed", text, ""))

    def cancelled(self) -> None:
        """The actor ends."""
        if self.take("cannot be answered any more: its actor has ended"):
            self._write(pack_header(ERROR, [self._call_id, NO_ERROR, [], "cancelled"]))

    def _begin(self) -> None:
        if not self.take():
            raise PortClosed(f"{self._what} {self._over}")

    def _refuse(self, remote: RemoteException, state: str = "") -> None:
        self._write(pack_header(ERROR, [self._call_id, error_to_wire(remote), [], state]))

    def _write(self, answer: Buffer) -> None:
        if self._answer is not None:
            self._answer([answer])


def _joined(parts: list[Buffer]) -> bytes:
    return b"".join(parts)  # user code may change its arrays before they are written


class ResponsePort:
    """What such an endpoint is given as its first argument; for type checkers a `meshrt.Port`."""

    def __init__(self, response: Response) -> None:
        self._response = response
        # Collection may run anywhere, also where locks are held.
        weakref.finalize(self, current_runtime().tree.call_later, 0.0, response.dropped).atexit = False

    def send(self, value: object) -> None:
        """Answer the call. Raises PortClosed: it was answered already."""
        self._response.send(value)

    def exception(self, error: BaseException) -> None:
        """Answer the call with an exception. Raises PortClosed: it was answered already."""
        self._response.fail(error)

    def __repr__(self) -> str:
        return f"<response port of {self._response}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a response port cannot be sent to another process; open a Channel and send its port")

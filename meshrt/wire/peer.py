"""Requests and their answers, between any two processes of the control plane. Sans-IO: it sends through a function.

A request of this side (`Requests`)::

    open -> answered    its `Answer` has come
         -> refused     its `Refusal` has come
         -> failed      the process that was asked has ended, or the connection to it (`Requests.fail`)
         -> forgotten   no longer waited for (`Requests.forget`); an answer that comes later is dropped

A request of the other side (`Reply`)::

    served -> answered | refused    once: later answers are dropped
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from meshrt.errors import ProtocolError
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Data, body_of
from meshrt.wire.control import Message
from meshrt.wire.errors import refusal, refused
from meshrt.wire.pending import PendingTable
from meshrt.wire.tree import Answer, Later, Refusal, Request

__all__ = ["LATER", "Answered", "DataReply", "Reply", "Requests"]

D = TypeVar("D", bound=Data, contravariant=True)

#: Seconds after which a host agent that gathers answers is told that this answer takes longer, without an error.
LATER = 0.1

Answered = Callable[[Body | None, Exception | None], object]
"""Takes the result of a request, ``answered(body, None)``, or ``answered(None, error)``, once."""


class Requests:
    """The requests to one peer that are open. Any thread: each change is one step.

    Args:
        send: Sends a request; what it raises, `ask` raises.
        numbers: Numbers the requests; several tables may share it.
    """

    def __init__(self, send: Callable[[Request], object], numbers: Iterator[int] | None = None) -> None:
        self._send = send
        self._open: PendingTable[Answered] = PendingTable(numbers)

    def ask(self, operation: str, body: Body, answered: Answered) -> int:
        """Send a request. Returns its number.

        Args:
            answered: Called by the thread that passes the answer to `received`, or calls `fail`.
        """
        number = self._open.add(answered)
        try:
            self._send(Request(number, operation, body))
        except Exception:
            if self._open.remove(number) is not None:  # or else `fail` has told it, as the connection has ended
                raise
        except BaseException:
            self._open.remove(number)
            raise
        return number

    def forget(self, number: int) -> None:
        """Drop a request whose answer is no longer waited for."""
        self._open.remove(number)

    def received(self, message: Answer | Refusal) -> None:
        """The peer has answered."""
        answered = self._open.remove(message.id)
        if answered is None:
            return
        if isinstance(message, Answer):
            answered(message.body or {}, None)
        else:
            answered(None, refused(message))

    def fail(self, error: Exception) -> None:
        """No answers will come."""
        for answered in self._open.clear():
            answered(None, error)


class Reply:
    """``reply(body, "")`` or ``reply(None, why)``: the first call counts. Any thread.

    Args:
        number: The request's: 0 when no answer is wanted, negative when a host agent gathers them.
        send: Sends a message to the peer that has asked. Raises ProtocolError for one that is too long.
    """

    __slots__ = ("_number", "_send", "given")

    def __init__(self, number: int, send: Callable[[Message], object]) -> None:
        self._number = number
        self._send = send
        self.given = False

    def __call__(self, body: Body | None, why: str) -> None:
        """Answer with a result, or refuse with a text."""
        self._give(Refusal(self._number, why) if why else Answer(self._number, body))

    def fail(self, error: Exception) -> None:
        """Refuse with an error: the peer that has asked gets one of the same class, if it is one of meshrt."""
        self._give(refusal(self._number, error))

    def _give(self, message: Answer | Refusal) -> None:
        if self.given:
            return
        self.given = True
        if not self._number:
            return
        try:
            self._send(message)
        except ProtocolError as error:
            self._send(refusal(self._number, error))

    def begins(self) -> None:
        """What has to be loaded first may take a while: the host agent is told at once that nothing is wrong."""
        if self._number < 0:
            self._say_later()

    def wait(self, call_later: Callable[[float, Callable[[], None]], None]) -> None:
        """The answer is left for later."""
        if not self.given and self._number < 0:
            call_later(LATER, self._say_later)

    def _say_later(self) -> None:
        if not self.given:
            self._send(Later(self._number))


class DataReply(Generic[D]):
    """A `Reply` with the type of the answer. Any thread."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __call__(self, answer: D) -> None:
        """Answer; the first call counts."""
        self._reply(body_of(answer), "")

    def fail(self, error: Exception) -> None:
        """Refuse with an error."""
        self._reply.fail(error)

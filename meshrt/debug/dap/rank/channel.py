"""Rank side: what one IDE has to itself while an engine serves several, one after the other.

An answer belongs to the IDE that has sent the request. Requests of different IDEs have different numbers for the
engine, and answers to an IDE that is gone are dropped. A message is sent whole under the number of its own IDE, even
if another IDE has the rank before its last part is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from meshrt.debug.dap.operations import FromEngine, OfChannel, Said
from meshrt.debug.dap.wire import MESSAGE_MAX, Message, MessageDecoder, encode, failure
from meshrt.hooks.services import RankServices

__all__ = ["Channel"]

P = ParamSpec("P")

#: Bytes that go up the tree without having been taken by the router; and bytes of one message there.
_WINDOW = 1 << 20
_CHUNK = 128 << 10
#: Of requests, an IDE has so many.
_NUMBERS = 1 << 32


class Channel:
    """On the pump's thread, unless said otherwise.

    Args:
        number: By which the root knows this IDE.
        before: That of the IDE whose engine it takes over.
    """

    def __init__(self, services: RankServices, number: int, before: Channel | None = None) -> None:
        self._services = services
        self.number = number
        #: The IDE is gone, and stopped threads stay stopped; nothing more is sent to it. Set by any thread.
        self.lost = False
        #: Which one of this engine's it is.
        self._place: int = 0 if before is None else before._place + 1
        self._decoder = MessageDecoder()
        self._window = _WINDOW
        #: What the router has taken: counted by the thread, which spends it too.
        self._acks: deque[int] = deque()

    def taken(self, count: int) -> None:
        """The router has taken so many bytes. Any thread."""
        self._acks.append(count)

    @property
    def has_room(self) -> bool:
        """Whether it may be sent more."""
        while self._acks:
            self._window += self._acks.popleft()
        return self.lost or self._window > 0

    def receive(self, data: bytes) -> list[Message]:
        """Take what the IDE has sent; return its whole messages, with the engine's numbers. Raises ProtocolError."""
        messages = self._decoder.receive_data(data)
        return [{**each, "seq": each.get("seq", 0) + self._place * _NUMBERS} for each in messages]

    def send(self, message: Message) -> None:
        """Send what the engine says, or what is said in its place, if it is for this IDE."""
        if message["type"] == "response":
            whose, number = divmod(message["request_seq"], _NUMBERS)
            if whose != self._place:
                return
            message = {**message, "request_seq": number}
        if self.lost:
            return
        data = encode(message)
        if len(data) > MESSAGE_MAX:
            why = f"message of {len(data) >> 20} MiB, the limit is {MESSAGE_MAX >> 20} MiB: show a part of the value"
            if message["type"] != "response":
                self.tell(Said, f"an event was not sent: {why}")
                return
            data = encode(failure({"seq": message["request_seq"], "command": message["command"]}, why))
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            self._window -= len(part)
            self.tell(FromEngine, part)

    def tell(self, report: Callable[Concatenate[int, P], OfChannel], *rest: P.args, **named: P.kwargs) -> None:
        """Tell the IDE, through the root, of something that happens to it. Any thread."""
        if not self.lost:
            self.report(report, *rest, **named)

    def report(self, report: Callable[Concatenate[int, P], OfChannel], *rest: P.args, **named: P.kwargs) -> None:
        """Send the root a report, also if the IDE is gone. Any thread.

        Args:
            report: The class of the report; its other arguments follow.
        """
        self._services.report(report(self.number, *rest, **named))

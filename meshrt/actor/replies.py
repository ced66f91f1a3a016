"""The answer to one request of the control tree, which may be given later and from another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshrt.errors import ProtocolError
from meshrt.hooks.facts import Body

__all__ = ["Reply"]

#: Seconds after which a host agent that gathers answers is told that this one takes its time, and nothing is wrong.
LATER = 0.1


class Reply:
    """``reply(body, "")`` or ``reply(None, why)``: the first call counts. Any thread.

    Args:
        number: The request's: 0 when nobody wants an answer, negative when a host agent gathers them.
        send: Sends a message up the tree.
    """

    __slots__ = ("_number", "_send", "given")

    def __init__(self, number: int, send: Callable[[dict[str, Any]], None]) -> None:
        self._number = number
        self._send = send
        self.given = False

    def __call__(self, body: Body | None, why: str) -> None:
        """Answer."""
        if self.given:
            return
        self.given = True
        if not self._number:
            return
        if why:
            self._send({"t": "no", "id": self._number, "why": why})
            return
        try:
            self._send({"t": "ok", "id": self._number, "body": body})
        except ProtocolError as error:
            self._send({"t": "no", "id": self._number, "why": str(error)})

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
            self._send({"t": "later", "id": self._number})

"""One outgoing link as the driver keeps it, and the calls that it owes an answer.

``handshake -> open -> gone``; and ``open -> asleep -> handshake``: it has no socket while its actor is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from meshrt.transport.fate import Fate
from meshrt.transport.link import Link, kept
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import NOBODY, ClientHandshake

__all__ = ["Early", "Loss", "OutLink", "Receiver"]

#: What a message in a queue takes beside its bytes, with the future of its call, bytes.
_MESSAGE = 1 << 10


class Loss(NamedTuple):
    """A rank that will not answer."""

    position: int
    fate: Fate
    #: Whether the call may have reached it.
    sent: bool


class Receiver(Protocol):
    """Who gets the answers of one call."""

    def deliver(self, position: int, frame: Frame) -> None:
        """An answer of the rank at ``position``. Called by the leading thread; short, runs no user code."""

    def lose(self, losses: Sequence[Loss]) -> None:
        """Some ranks will not answer: all that are known to be lost at once. As `deliver`."""


class Early:
    """What was sent before the link was open."""

    __slots__ = ("_kept", "bytes", "messages")

    def __init__(self) -> None:
        self.messages: list[list[Any]] = []
        self.bytes = 0
        self._kept = 0

    def append(self, parts: list[Any]) -> None:
        """Add a message."""
        self.messages.append(parts)
        self.bytes += sum(map(len, parts))

    def keep(self) -> None:
        """Copy what belongs to whoever sent it, who may change it."""
        for index in range(self._kept, len(self.messages)):
            self.messages[index] = [kept(part) for part in self.messages[index]]
            self._kept = index + 1


class OutLink:
    """A connection from this process to one actor on one rank."""

    __slots__ = (
        "asleep",
        "before",
        "early",
        "eof",
        "fate",
        "handshake",
        "key",
        "link",
        "outstanding",
        "path",
        "refusals",
        "server",
        "stopped",
        "trouble",
        "writing",
    )

    def __init__(self, key: tuple[str, int, str], path: str) -> None:
        self.key = key
        self.path = path
        #: Who serves it: nobody before it is open.
        self.server = NOBODY
        self.link: Link | None = None
        #: Not None until the link is open.
        self.handshake: ClientHandshake | None = None
        #: Sent before the link was open.
        self.early: Early | None = Early()
        #: How often the rank has hung up before it was proved who calls.
        self.refusals = 0
        #: call id -> (receiver, position) of the calls that have not been answered.
        self.outstanding: dict[int, tuple[Receiver, int]] = {}
        self.writing = False
        #: The actor was stopped, as far as is known here.
        self.stopped = False
        #: Closed because of that; the next call opens it again.
        self.asleep = False
        self.eof = False
        #: Why it could not be opened; "" if that is not known.
        self.trouble = ""
        self.fate: Fate | None = None
        #: How the process has ended that the one behind it has taken the place of.
        self.before: Fate | None = None

    def waiting_bytes(self) -> int:
        """Bytes that were sent but not written yet."""
        early, link = self.early, self.link  # another thread may open it
        return (early.bytes if early is not None else 0) + (link.backlog_bytes if link is not None else 0)

    def memory(self) -> int:
        """Bytes of memory that what was sent, and not written yet, takes in this process."""
        early, link = self.early, self.link
        count = (len(early.messages) if early is not None else 0) + (len(link.backlog) if link is not None else 0)
        return self.waiting_bytes() + count * _MESSAGE

"""One outgoing link: its connection to one actor on one rank, and the calls that wait for answers there.

States (`LinkState`), and what an event makes of each; ``-`` cannot happen or changes nothing:

============== ================ ================= ============== ================ ===========================
event          connecting       open              idle           disconnected     lost
============== ================ ================= ============== ================ ===========================
call is sent   it is queued     it is written     -> connecting  it waits         it fails at once
proved         -> open          -                 -              -                -
end of stream  dialled again,   -> disconnected   -              -                -
               5 times at most,
               -> disconnected
foreign bytes  -> disconnected  -> disconnected   -              -                -
actor stopped, -                -> idle           -              -                -
no call waits
2 s pass       -                -                 -              -> lost ("link") -
13 s pass      -                -                 -              -> idle          -
rank ends      -> lost          -> lost           -> lost        -> lost          "link": its fate is replaced
rank restarts  -> idle          -> idle           -> idle        -> idle          "link": -> idle
============== ================ ================= ============== ================ ===========================

* connecting: The rank is dialled as soon as it listens, and each side proves that it holds the secret.
* idle: There is no connection. The next call makes one.
* disconnected: The connection has ended, or cannot be made. It is not known whether the rank has ended. It takes 13 s
  until a machine is known to be lost, so a link to one waits as long. Its calls fail after that, and the next one looks
  for another way.
* lost: Every call fails. The connection of an open link is read to its end before: answers that the rank has written
  are delivered.

Who moves a link: `meshrt.transport.dialling` (connecting), `.reading` (open, idle), `.disconnects` (disconnected),
`.lostlinks` (lost, and idle after a restart), and `Driver.send` (from idle to connecting).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from meshrt.hooks.fate import Fate
from meshrt.transport.link import Link, kept
from meshrt.wire.addresses import RankAddress
from meshrt.wire.frames import Buffer, Frame
from meshrt.wire.handshake import UNKNOWN_PEER, ClientHandshake, Identity

__all__ = ["Early", "LinkState", "Loss", "OutLink", "Receiver"]

#: What a message in a queue takes beside its bytes, with the future of its call, bytes.
_MESSAGE = 1 << 10


class LinkState(enum.Enum):
    """The state of an outgoing link; the table is in the header of this module."""

    CONNECTING = "connecting"
    OPEN = "open"
    IDLE = "idle"
    DISCONNECTED = "disconnected"
    LOST = "lost"


class Loss(NamedTuple):
    """A rank that will not answer."""

    position: int
    fate: Fate
    #: Whether the call may have reached it.
    sent: bool


class Receiver(Protocol):
    """Receives the answers of one call."""

    def deliver(self, position: int, frame: Frame) -> None:
        """An answer of the rank at ``position``. Called by the leading thread; short, runs no user code."""

    def lose(self, losses: Sequence[Loss]) -> None:
        """Some ranks will not answer: all that are known to be lost at once. As `deliver`."""


class Early:
    """What was sent before the link was open."""

    __slots__ = ("_kept", "bytes", "messages")

    def __init__(self) -> None:
        self.messages: list[list[Buffer]] = []
        self.bytes: int = 0
        self._kept = 0

    def append(self, parts: list[Buffer]) -> None:
        """Add a message."""
        self.messages.append(parts)
        self.bytes += sum(map(len, parts))

    def keep(self) -> None:
        """Copy the buffers of the sender, which may change them. Raises MemoryError."""
        for index in range(self._kept, len(self.messages)):
            self.messages[index] = [kept(part) for part in self.messages[index]]
            self._kept = index + 1


class OutLink:
    """A connection from this process to one actor on one rank."""

    __slots__ = (
        "address",
        "before",
        "disconnected",
        "early",
        "elsewhere",
        "fate",
        "handshake",
        "idle",
        "key",
        "link",
        "outstanding",
        "refusals",
        "search",
        "server",
        "stopped",
        "trouble",
        "writing",
    )

    def __init__(self, key: tuple[str, int, str], address: RankAddress) -> None:
        self.key: tuple[str, int, str] = key
        self.address: RankAddress = address
        #: The process at the other end: `UNKNOWN_PEER` before the link is open.
        self.server: Identity = UNKNOWN_PEER
        self.link: Link | None = None
        #: The rank is on another machine.
        self.elsewhere: bool = False
        #: Identifies the search for a way to it that is under way.
        self.search: object | None = None
        #: Not None while both sides prove that they hold the secret.
        self.handshake: ClientHandshake | None = None
        #: Sent before the link was open; None while it is open.
        self.early: Early | None = Early()
        #: How often the rank has hung up before both sides were proved.
        self.refusals: int = 0
        #: call id -> (receiver, position) of the calls that have not been answered.
        self.outstanding: dict[int, tuple[Receiver, int]] = {}
        self.writing: bool = False
        #: The actor was stopped, as far as is known here.
        self.stopped: bool = False
        #: There is no connection: the actor was stopped, or the rank restarts. The next call makes one.
        self.idle: bool = False
        #: The connection has ended, or cannot be made.
        self.disconnected: bool = False
        #: Why it could not be made; "" if that is not known.
        self.trouble: str = ""
        #: Why the link is lost.
        self.fate: Fate | None = None
        #: How the process has ended whose place the process at the other end has taken.
        self.before: Fate | None = None

    @property
    def state(self) -> LinkState:
        """The state that the fields amount to. Exact on the leading thread only."""
        if self.fate is not None:
            return LinkState.LOST
        if self.disconnected:
            return LinkState.DISCONNECTED
        if self.idle:
            return LinkState.IDLE
        return LinkState.OPEN if self.early is None else LinkState.CONNECTING

    def waiting_bytes(self) -> int:
        """Bytes that were sent but not written yet."""
        early, link = self.early, self.link  # another thread may open it
        return (early.bytes if early is not None else 0) + (link.backlog_bytes if link is not None else 0)

    def memory(self) -> int:
        """Bytes of memory that what was sent, and not written yet, takes in this process."""
        early, link = self.early, self.link
        count = (len(early.messages) if early is not None else 0) + (len(link.backlog) if link is not None else 0)
        return self.waiting_bytes() + count * _MESSAGE

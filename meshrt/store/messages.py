"""The messages between processes, the store of their host, and the stores of other machines.

A process talks to the store of its host. The store of a host talks to that of another machine over a connection that
the one that asks has made: it offers segments of its own (`Offer`), and fetches those of the other (`Pull`), which may
name a third one that has the bytes, too (`Relay`). The side that asks numbers its questions; the answer has the same
``id``.

A process is identified by its pid, as the kernel gives it. Its leases end with the process, not with its connection: a
lost connection may be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta

from meshrt.errors import StoreFull
from meshrt.store.chain import StoreName
from meshrt.store.lease import Loan
from meshrt.wire.control import Catalogue, Message
from meshrt.wire.errors import why_of
from meshrt.wire.tree import Later, Refusal

__all__ = [
    "FROM_PROCESS",
    "FROM_STORE",
    "TO_PROCESS",
    "TO_STORE",
    "Deliver",
    "Delivered",
    "Dropped",
    "Fetch",
    "Fetched",
    "Found",
    "Freed",
    "FromProcess",
    "FromStore",
    "Full",
    "Give",
    "GiveBack",
    "Grant",
    "Granted",
    "Host",
    "Import",
    "Imported",
    "LetGo",
    "Offer",
    "Piece",
    "Publish",
    "Published",
    "Pull",
    "Recall",
    "Relay",
    "Share",
    "Silent",
    "Skip",
    "Take",
    "TakeBack",
    "Taken",
    "ToProcess",
    "ToStore",
    "WithDescriptors",
    "Withdraw",
    "refusal_of",
]

Pid = Annotated[int, Meta(gt=0, lt=1 << 22)]
"""The kernel has none beyond."""

Size = Annotated[int, Meta(gt=0, lt=1 << 60)]
"""Bytes; no machine has as many."""

Offset = Annotated[int, Meta(ge=0, lt=1 << 60)]


class Host(NamedTuple):
    """Receivers on another machine that share a store."""

    machine: int
    agent_pid: int
    pids: Sequence[Pid]


class WithDescriptors(Message, frozen=True, kw_only=True):
    """A message that descriptors come with, with its first byte.

    ``fds``: how many were sent; fewer come if none was left to receive them.
    """

    fds: Annotated[int, Meta(ge=0)] = 0


# ---- process to store: questions


class Publish(WithDescriptors, frozen=True, tag="publish"):
    """A process has a new chunk of so many bytes. With it comes its file, for reading. Answer: `Published`."""

    id: int
    chunk: int
    size: Size


class Grant(Message, frozen=True, tag="grant"):
    """May this process have so many bytes of memory more? Answer: `Granted`."""

    id: int
    size: Size


class Take(Message, frozen=True, tag="take"):
    """This process holds a segment once more, if it is there. Answer: `Taken`."""

    id: int
    segment: int


class Fetch(Message, frozen=True, tag="fetch"):
    """The file of a chunk is wanted. Answer: `Fetched`."""

    id: int
    chunk: int


class Import(Message, frozen=True, tag="import"):
    """A segment of another machine is to be here, for all of this host; then as `Take`. Answer: `Imported`."""

    id: int
    loan: Loan


class Deliver(Message, frozen=True, tag="deliver"):
    """Processes of other machines are to hold these segments. Answer: `Delivered`."""

    id: int
    loans: Sequence[Loan]
    to: Sequence[Host]


# ---- process to store: what is not answered


class Share(Message, frozen=True, tag="share"):
    """A segment was written, and is held by the processes ``to``. The other fields: `meshrt.store.registry.Segment`."""

    segment: int
    chunk: int
    start: Offset
    size: Size
    kind: str
    site: str
    disk: bool
    to: Sequence[Pid]


class Give(Message, frozen=True, tag="give"):
    """These processes hold segments once more."""

    segments: Sequence[int]
    to: Sequence[Pid]


class LetGo(Message, frozen=True, tag="let_go"):
    """The sender holds segments once less: a process, or the store of another machine."""

    segments: Sequence[int]


class Withdraw(Message, frozen=True, tag="withdraw"):
    """These segments were shared, and then not sent to any process."""

    segments: Sequence[int]


class TakeBack(Message, frozen=True, tag="take_back"):
    """These processes were given segments, which were then not sent to them.

    From the store of another machine: what it has offered for these processes was not sent.
    """

    segments: Sequence[int]
    pids: Sequence[Pid]


class Recall(Message, frozen=True, tag="recall"):
    """What was delivered to these hosts was not sent."""

    segments: Sequence[int]
    to: Sequence[Host]


class GiveBack(Message, frozen=True, tag="give_back"):
    """This process has so many bytes of memory less."""

    size: Size


# ---- store to process


class Published(Message, frozen=True, tag="published"):
    """The answer to `Publish`."""

    id: int


class Granted(Message, frozen=True, tag="granted"):
    """The answer to `Grant`: so many bytes more."""

    id: int
    size: int


class Taken(Message, frozen=True, tag="taken"):
    """The answer to `Take`: the process holds this segment once more."""

    id: int
    segment: int


class Fetched(WithDescriptors, frozen=True, tag="fetched"):
    """The answer to `Fetch`: the size of the chunk in bytes. With it comes its file, for reading."""

    id: int
    size: int


class Imported(Message, frozen=True, tag="imported"):
    """The answer to `Import`, and to `Offer`: where the segment is here; those who were to hold it hold it."""

    id: int
    loan: Loan


class Delivered(Message, frozen=True, tag="delivered"):
    """The answer to `Deliver`: those hosts that are not lost, and for each where the segments are there."""

    id: int
    to: Sequence[Host]
    there: Sequence[Sequence[Loan]]


class Full(Message, frozen=True, tag="full"):
    """There is no room: what a `StoreFull` is made of."""

    id: int
    size: int
    limit: int
    used: int
    what: str

    def error(self) -> StoreFull:
        """Return the error that this tells of."""
        return StoreFull(self.size, self.limit, self.used, self.what)


class Silent(Message, frozen=True, tag="silent"):
    """The agent of a host that something was to be delivered to has said nothing for so many seconds."""

    id: int
    agent_pid: int
    seconds: Annotated[float, Meta(ge=0, lt=1 << 30)]


class Freed(Message, frozen=True, tag="freed"):
    """The process may write to these segments of its own again."""

    segments: Sequence[int]


class Dropped(Message, frozen=True, tag="dropped"):
    """A chunk need not be mapped any more: its owner has ended, and no process holds any of it."""

    chunk: int


# ---- store to the store of another machine


class Pull(Message, frozen=True, tag="pull"):
    """The sender's host holds a segment from now on, and wants ``size`` bytes of it. Answer: `Found`."""

    id: int
    segment: int
    size: Size


class Skip(Message, frozen=True, tag="skip"):
    """As `Pull`, from ``start`` on: the host that was named before does not deliver. Answer: `Found`."""

    id: int
    segment: int
    size: Size
    start: Offset
    without: StoreName


class Relay(Message, frozen=True, tag="relay"):
    """The sender's host wants bytes of a segment that this host has, or fetches. Answer: `Found`, then `Piece`s.

    The sender holds the segment until it has them, and then lets go.
    """

    id: int
    segment: int
    size: Size
    start: Offset


class Offer(Message, frozen=True, tag="offer"):
    """A segment of the sender is to be fetched; these processes hold it then. Answer: `Imported`."""

    id: int
    loan: Loan
    pids: Sequence[Pid]


class Found(Message, frozen=True, tag="found"):
    """The answer to a request for a segment: its kind, and where it was made (`meshrt.store.registry.Segment`).

    ``source``: the host to fetch it from; None: this one, whose `Piece`s follow.
    """

    id: int
    kind: str
    site: str
    source: StoreName | None = None


class Piece(NamedTuple):
    """Bytes of a segment, in order; the next ones are sent when the connection takes them.

    It is no control message, but a frame of its own (`meshrt.store.protocol`).
    """

    id: int
    data: bytes | memoryview


FromProcess = (
    Publish | Grant | Take | Fetch | Import | Deliver | Share | Give | LetGo | Withdraw | TakeBack | Recall | GiveBack
)
ToProcess = (
    Published | Granted | Taken | Fetched | Imported | Delivered | Refusal | Full | Silent | Later | Freed | Dropped
)
FromStore = Pull | Skip | Relay | Offer | LetGo | TakeBack
ToStore = Found | Imported | Refusal | Full | Later

#: What a process may send to the store of its host, and that one to a process.
FROM_PROCESS: Catalogue[FromProcess] = Catalogue(FromProcess)
TO_PROCESS: Catalogue[ToProcess] = Catalogue(ToProcess)
#: What a store may send over a connection that it has made to the store of another machine, and what it is told there.
FROM_STORE: Catalogue[FromStore] = Catalogue(FromStore)
TO_STORE: Catalogue[ToStore] = Catalogue(ToStore)


def refusal_of(number: int, error: Exception) -> Refusal | Full:
    """Return the answer to a question that failed with ``error``."""
    if isinstance(error, StoreFull):
        return Full(number, error.size, error.limit, error.used, error.what)
    return Refusal(number, why_of(error))

"""The leases of a process on segments, and the segments of one message."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta

from meshrt.errors import MeshError, ReferenceLost
from meshrt.store.mapping import Copies, Mapping
from meshrt.transport.interrupts import called_by_python
from meshrt.wire.frames import Unreceived

__all__ = [
    "Lease",
    "Lender",
    "Loan",
    "Reading",
    "Received",
    "Spot",
    "of_this_message",
    "spot_at",
    "spot_of",
    "writable",
]

Spot = tuple[int, int]
"""Bytes of the store: the segment that they are in, and where in it they begin."""


class Loan(NamedTuple):
    """Where a segment is: the store that registers it, and its bytes in a chunk.

    Travels in the header of a message, and in messages of the stores (`meshrt.store.messages`), which check its size.
    """

    machine: int
    agent_pid: int
    chunk: int
    segment: int
    start: int
    size: Annotated[int, Meta(gt=0, lt=1 << 60)]


class Lender(Protocol):
    """The store, as leases see it."""

    def mapping(self, loan: Loan) -> Mapping | Copies:
        """Return the chunk of a segment as it is mapped here."""

    def private(self, loan: Loan) -> Mapping:
        """Map a segment so that it can be written to, which no other process sees. Raises ReferenceLost, OSError."""

    def let_go(self, loan: Loan) -> None:
        """This process holds a segment once less. Any thread, at any time."""

    def take(self, loan: Loan) -> Loan:
        """Hold a segment once more. Returns where it is on this machine. Raises ReferenceLost, StoreFull."""


class Lease:
    """One count of this process; ends when nothing refers to it any more, neither this object nor a view."""

    __slots__ = ("__weakref__", "_lender", "_mapping", "for_ever", "loan")

    def __init__(self, lender: Lender, loan: Loan, mapping: Mapping | Copies | None = None) -> None:
        self._lender = lender
        self.loan: Loan = loan
        #: Kept once it is known: it outlives the host agent.
        self._mapping = mapping
        #: A child was forked while it was held, which may look at it for as long as it lives.
        self.for_ever: bool = False
        _live[id(self)] = weakref.ref(self)

    @called_by_python
    def __del__(self) -> None:
        _live.pop(id(self), None)
        if not self.for_ever:
            self._lender.let_go(self.loan)

    def window(self, start: int, size: int, keep: object) -> memoryview:
        """Return bytes of the segment, to read; they keep ``keep``. Raises ReferenceLost, OSError."""
        if self._mapping is None:
            self._mapping = self._lender.mapping(self.loan)
        return self._mapping.window(self.loan.start + start, size, keep)

    def private(self) -> Mapping:
        """Return the segment, to write for oneself. Raises ReferenceLost, OSError."""
        mapping = self._lender.private(self.loan)
        _private[mapping] = self.loan.segment
        return mapping


class Reading:
    """One time that a segment is read. What is made of it keeps the lease, and is apart from what another time is made.

    Arrays are views to read. What cannot be told that it must not write (a tensor) gets pages of its own as it writes:
    all of one reading that see the same bytes see what is written there.
    """

    __slots__ = ("_lease", "_private")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._private: Mapping | None = None

    @property
    def segment(self) -> int:
        """Return the number by which the stores know what is read."""
        return self._lease.loan.segment

    def window(self, start: int, size: int) -> memoryview:
        """Return bytes of the segment, to read. Raises ReferenceLost, OSError."""
        view = self._lease.window(start, size, self)
        memory = _memory_of(view)
        if isinstance(memory, ctypes.Array):  # or else it is a copy
            memory.origin = self, start  # type: ignore[attr-defined]
        return view

    def writable(self, start: int, size: int) -> memoryview:
        """Return bytes of the segment, to write. Raises ReferenceLost, OSError."""
        if self._private is None:
            self._private = self._lease.private()
        return self._private.window(start, size, self)


def writable(view: memoryview) -> memoryview:
    """Return the bytes of a buffer that has come with a message or with a reference, to write.

    Of what is in the store nothing is copied before it is written.
    """
    if not view.readonly:
        return view
    origin = getattr(_memory_of(view), "origin", None)
    if isinstance(origin, tuple) and isinstance(origin[0], Reading):
        try:
            return origin[0].writable(origin[1], view.nbytes)
        except (MeshError, OSError):
            pass  # its store has ended, or no addresses are left: what is seen of it can be copied
    return memoryview(bytearray(view))


def spot_of(origin: object) -> Spot | None:
    """Return what of the store memory shows that has such an ``origin``; None: it is no such memory. Any thread."""
    if isinstance(origin, tuple) and isinstance(origin[0], Reading):
        return origin[0].segment, origin[1]
    return None


def spot_at(address: int) -> Spot | None:
    """Return what of the store is mapped at an address for this process to write; None: nothing. Any thread."""
    # One step: other threads map and unmap meanwhile.
    for mapping in [reference() for reference in _private.keyrefs()]:
        if mapping is not None and mapping.has(address) and (segment := _private.get(mapping)) is not None:
            return segment, address - mapping.address
    return None


def _memory_of(view: memoryview) -> object:
    found: object = view
    while isinstance(found, memoryview):
        found = found.obj
    return found


#: The segments that are mapped for this process to write.
_private: weakref.WeakKeyDictionary[Mapping, int] = weakref.WeakKeyDictionary()
#: By identity. No WeakSet: going through one fails if it changes meanwhile, and a copy of this is one step.
_live: dict[int, weakref.ref[Lease]] = {}


def _leases() -> list[Lease]:
    return [lease for found in list(_live.values()) if (lease := found()) is not None]


@called_by_python
def _before_fork() -> None:
    for lease in _leases():
        lease.for_ever = True


os.register_at_fork(before=_before_fork)

_current = threading.local()


class Received:
    """The payload of a message of which parts are in the store (`meshrt.wire.codec.Outside`).

    Args:
        payload: What came along.
        loans: The segments that the rest is in.
        given: Whether the sender has said that this process holds them; otherwise it takes them when it reads.
    """

    __slots__ = ("_by_segment", "_leases", "_lender", "_loans", "_outer", "_readings", "payload")

    def __init__(
        self, lender: Lender, payload: memoryview | bytes | Unreceived, loans: list[Loan], given: bool
    ) -> None:
        self.payload = payload
        self._lender = lender
        self._loans = loans
        self._leases = [Lease(lender, loan) for loan in loans] if given else None
        self._by_segment: dict[int, Lease] | None = None
        self._outer: Received | None = None
        self._readings: list[Reading] = []

    def __enter__(self) -> None:
        if self._leases is None:
            self._leases = []
            for loan in self._loans:
                self._leases.append(Lease(self._lender, self._lender.take(loan)))
        self._readings = [Reading(lease) for lease in self._leases]
        self._outer = getattr(_current, "received", None)
        _current.received = self

    def __exit__(self, kind: object, *_exc_info: object) -> None:
        _current.received, self._outer = self._outer, None
        self._readings = []
        if kind is None:  # or else it may be read once more: an interrupt is no end of a message
            # From here on what was made of it holds it.
            self._leases, self._by_segment = [], None

    def bytes_at(self, place: list[int]) -> memoryview:
        """Return the bytes that are at ``[index of the segment, start, size]``."""
        index, start, size = place
        return self._readings[index].window(start, size)

    def lease(self, segment: int) -> Lease:
        """Return the lease of a segment that came with this message."""
        if self._by_segment is None:
            self._by_segment = {lease.loan.segment: lease for lease in self._leases or ()}
        return self._by_segment[segment]


def of_this_message(segment: int) -> Lease:
    """Return the lease of a segment, while the message that has brought it is unpickled on this thread.

    Raises:
        ReferenceLost: Nothing is being unpickled, or it has not brought that segment.
    """
    received: Received | None = getattr(_current, "received", None)
    try:
        if received is not None:
            return received.lease(segment)
    except KeyError:
        pass
    raise ReferenceLost("a reference can only be loaded from messages between processes of one program")

"""What a process holds of a segment, and what has come with one message."""

from __future__ import annotations

import os
import threading
import weakref
from typing import NamedTuple, Protocol

from meshrt.errors import ReferenceLost
from meshrt.store.mapping import Copies, Mapping

__all__ = ["Lease", "Loan", "Received", "of_this_message"]


class Loan(NamedTuple):
    """Where a segment is: whose store knows of it, and its bytes in a chunk. Travels in the header of a message."""

    agent_pid: int
    chunk: int
    segment: int
    start: int
    size: int


class Lender(Protocol):
    """The store, as leases see it."""

    def mapping(self, loan: Loan) -> Mapping | Copies:
        """Return the chunk of a segment as it is mapped here."""

    def let_go(self, loan: Loan) -> None:
        """This process holds a segment once less. Any thread, at any time."""

    def take(self, loan: Loan) -> bool:
        """Hold a segment once more. Returns whether it is there."""


class Lease:
    """One count of this process; ends when nothing refers to it any more, neither this object nor a view."""

    __slots__ = ("__weakref__", "_lender", "_mapping", "for_ever", "loan")

    def __init__(self, lender: Lender, loan: Loan, mapping: Mapping | Copies | None = None) -> None:
        self._lender = lender
        self.loan = loan
        #: Kept once it is known: it outlives the host agent.
        self._mapping = mapping
        #: A child was forked while it was held, which may look at it for as long as it lives.
        self.for_ever = False
        _live[id(self)] = weakref.ref(self)

    def __del__(self) -> None:
        _live.pop(id(self), None)
        if not self.for_ever:
            self._lender.let_go(self.loan)

    def window(self, start: int, size: int) -> memoryview:
        """Return bytes of the segment, to read; they keep this lease. Raises ReferenceLost, OSError."""
        if self._mapping is None:
            self._mapping = self._lender.mapping(self.loan)
        return self._mapping.window(self.loan.start + start, size, self)


#: By identity. No WeakSet: going through one fails if it changes meanwhile, and a copy of this is one step.
_live: dict[int, weakref.ref[Lease]] = {}


def _before_fork() -> None:
    for lease in [found() for found in list(_live.values())]:
        if lease is not None:
            lease.for_ever = True


os.register_at_fork(before=_before_fork)

_current = threading.local()


class Received:
    """The payload of a message of which parts are in the store (`meshrt.wire.codec.Outside`).

    Args:
        payload: What came along.
        loans: The segments that the rest stands in.
        given: Whether whoever sent it has said that this process holds them; otherwise it takes them when it reads.
    """

    __slots__ = ("_by_segment", "_leases", "_lender", "_loans", "_outer", "payload")

    def __init__(self, lender: Lender, payload: memoryview | bytes, loans: list[Loan], given: bool) -> None:
        self.payload = payload
        self._lender = lender
        self._loans = loans
        self._leases = [Lease(lender, loan) for loan in loans] if given else None
        self._by_segment: dict[int, Lease] | None = None
        self._outer: Received | None = None

    def __enter__(self) -> None:
        if self._leases is None:
            self._leases = []
            for loan in self._loans:
                if not self._lender.take(loan):
                    raise ReferenceLost("what this message carries in shared memory is gone")
                self._leases.append(Lease(self._lender, loan))
        self._outer = getattr(_current, "received", None)
        _current.received = self

    def __exit__(self, kind: object, *_exc_info: object) -> None:
        _current.received, self._outer = self._outer, None
        if kind is None:  # or else somebody may read it once more: an interrupt is no end of a message
            # From here on what was made of it holds it.
            self._leases, self._by_segment = [], None

    def bytes_at(self, place: list[int]) -> memoryview:
        """Return the bytes that stand at ``[index of the segment, start, size]``."""
        index, start, size = place
        return self._held()[index].window(start, size)

    def lease(self, segment: int) -> Lease:
        """Return the lease of a segment that came with this message."""
        if self._by_segment is None:
            self._by_segment = {lease.loan.segment: lease for lease in self._held()}
        return self._by_segment[segment]

    def _held(self) -> list[Lease]:
        return self._leases or []


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
    raise ReferenceLost("a reference lives in messages between processes of one program only: it cannot be loaded here")

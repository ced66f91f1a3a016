"""The holders of segments in the store of one host. Pure: no I/O; the host agent has one (`meshrt.store.server`).

A **segment** is what one process has written at once: an object that was put, or the large parts of one message. Its
holders are processes, each with a count:

* the process that writes it shares it with the receivers before it sends them the message, and releases it itself: a
  receiver holds it from then on, whether it has read the message or not;
* a receiver on another machine has its host's store fetch it: that host is one holder here, under a number of its own
  that is negative, and its connection is all that is known of it;
* a receiver that passes a reference on gives it to the next receivers in the same way, before it releases it.

Messages of different processes are not ordered: a release may arrive here before the share. So counts may be negative,
and releases of unknown segments are remembered.

A segment: ``unknown -> shared -> free``; free when it has been shared and every count is zero. What a process holds
ends with that process. Memory of an owner that has ended is given back, by chunk, when nothing in the chunk is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from meshrt.errors import StoreFull

__all__ = ["Chunk", "Registry", "Segment"]


class Segment(msgspec.Struct, eq=False):
    """One object in shared memory. Times: monotonic ns of this host."""

    id: int
    owner: int = 0
    chunk: int = 0
    #: Where in the chunk.
    start: int = 0
    size: int = 0
    #: "put", "argument" or "result".
    kind: str = ""
    #: Where in user code, ``file:line``, of a result with the endpoint; "" where that is not known.
    site: str = ""
    since: int = 0
    shared: bool = False
    #: It is in a file, not in memory.
    disk: bool = False
    #: pid -> count; a count may be negative for a while.
    holders: dict[int, int] = {}


class Chunk(msgspec.Struct, eq=False):
    """One file that segments are in."""

    id: int
    owner: int
    size: int
    #: For reading.
    descriptor: int
    #: It is not written to again, so it goes when nothing of it is held: its owner has ended.
    orphan: bool = False
    #: Processes that may have mapped it.
    readers: set[int] = set()
    segments: set[int] = set()


class Registry:
    """The segments of one host, and its chunks. One thread.

    Args:
        limit: Bytes that all owners may have committed together.
        freed: ``freed(owner, segment)``: the owner may use the memory again.
        drop: Called with a chunk of an ended owner of which nothing is held any more.
    """

    def __init__(self, limit: int, freed: Callable[[int, int], None], drop: Callable[[Chunk], None]) -> None:
        self.limit = limit
        self._freed = freed
        self._drop = drop
        self._segments: dict[int, Segment] = {}
        self._chunks: dict[int, Chunk] = {}
        self._granted: dict[int, int] = {}
        #: Bytes of what was fetched from other machines.
        self.imported = 0

    # -- memory

    @property
    def committed(self) -> int:
        """Return how many bytes the owners have, and what was fetched takes."""
        return sum(self._granted.values()) + self.imported

    def grant(self, owner: int, size: int, room: int) -> None:
        """Allow an owner ``size`` bytes more (or fewer, if negative). ``room``: what the host has left, bytes.

        Raises:
            StoreFull: Beyond the limit, or beyond what the host has.
        """
        self._check(size, room)
        self._granted[owner] = self._granted.get(owner, 0) + size

    def _check(self, size: int, room: int) -> None:
        if size > 0 and self.committed + size > self.limit:
            raise StoreFull(size, self.limit, self.committed, "the limit of the store (MESHRT_STORE_LIMIT)")
        if size > 0 and size > room:
            raise StoreFull(size, room, self.committed, "the memory that is free on this host")

    def grant_import(self, size: int, room: int) -> None:
        """Make room for what is fetched from another machine; as `grant`."""
        self._check(size, room)
        self.imported += size

    def add_chunk(self, chunk: Chunk) -> None:
        """An owner has a chunk."""
        self._chunks[chunk.id] = chunk

    def segment(self, number: int) -> Segment | None:
        """Return a segment that was shared and is held."""
        found = self._segments.get(number)
        return found if found is not None and found.shared else None

    def chunk(self, number: int) -> Chunk | None:
        """Return a chunk."""
        return self._chunks.get(number)

    def chunks(self) -> Iterable[Chunk]:
        """Return all chunks."""
        return self._chunks.values()

    # -- holding

    def share(self, segment: Segment, holders: Iterable[int]) -> None:
        """An owner has written a segment, which these processes hold."""
        early = self._segments.get(segment.id)
        if early is not None:
            segment.holders = early.holders
        segment.shared = True
        segment.since = time.monotonic_ns()
        self._segments[segment.id] = segment
        chunk = self._chunks.get(segment.chunk)
        if chunk is not None:
            chunk.segments.add(segment.id)
        self.give(segment.id, holders)

    def withdraw(self, number: int) -> None:
        """The segments that an owner has shared were not sent to any process, and never will be."""
        segment = self._segments.pop(number, None)
        chunk = None if segment is None else self._chunks.get(segment.chunk)
        if chunk is not None:
            chunk.segments.discard(number)

    def give(self, number: int, holders: Iterable[int]) -> None:
        """These processes hold a segment once more."""
        for pid in holders:
            self._count(number, pid, 1)
        self._look(number)

    def holds(self, number: int, pid: int) -> bool:
        """Whether a process, or another machine, holds a segment."""
        segment = self._segments.get(number)
        return segment is not None and segment.holders.get(pid, 0) > 0

    def let_go(self, number: int, pid: int) -> None:
        """A process holds a segment once less."""
        self._count(number, pid, -1)
        self._look(number)

    def _count(self, number: int, pid: int, by: int) -> None:
        segment = self._segments.setdefault(number, Segment(number))
        count = segment.holders.get(pid, 0) + by
        if count:
            segment.holders[pid] = count
        else:
            segment.holders.pop(pid, None)
            if not segment.holders and not segment.shared:
                del self._segments[number]

    def _look(self, number: int) -> None:
        segment = self.segment(number)
        if segment is None or segment.holders:
            return
        del self._segments[number]
        chunk = self._chunks.get(segment.chunk)
        if chunk is not None:
            chunk.segments.discard(number)
        if chunk is not None and chunk.orphan:
            self._give_back(segment.chunk)
        else:
            self._freed(segment.owner, number)

    # -- the end of processes

    def ended(self, pid: int) -> None:
        """A process has ended: it holds nothing, and what it owns is given back when no other process holds it."""
        for chunk in self._chunks.values():
            chunk.orphan = chunk.orphan or chunk.owner == pid
        for segment in list(self._segments.values()):
            if segment.holders.pop(pid, None) is not None:
                if not segment.holders and not segment.shared:
                    del self._segments[segment.id]
                self._look(segment.id)
        for number, chunk in list(self._chunks.items()):
            if chunk.owner == pid:
                self._give_back(number)
        if not any(chunk.owner == pid for chunk in self._chunks.values()):
            self._granted.pop(pid, None)

    def _give_back(self, number: int) -> None:
        chunk = self._chunks.get(number)
        if chunk is None:
            return
        if not chunk.segments:
            del self._chunks[number]
            self._drop(chunk)
        # What it had beside that cannot be given back before the chunk is: it counts no more, as it cannot be used.
        left = sum(each.size for each in self._segments.values() if each.owner == chunk.owner and not each.disk)
        if self._granted.pop(chunk.owner, None) is not None and left:
            self._granted[chunk.owner] = left

    def processes(self) -> set[int]:
        """Return all processes that own or hold something."""
        holders = {pid for segment in self._segments.values() for pid in segment.holders}
        return holders | {chunk.owner for chunk in self._chunks.values() if not chunk.orphan} | self._granted.keys()

    def segments(self) -> list[Segment]:
        """Return what is held."""
        return [segment for segment in self._segments.values() if segment.shared]

"""Messages that were sent and not written yet: their memory, its limits, and when they are written.

* What a rank does not take is queued on its link. A thread that has queued more than `THREAD_LIMIT` there waits.
* An event loop must not wait: it is refused a call where `LOOP_LIMIT` is reached.
* Buffers that a caller may change are written, or copied, before its call returns.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from meshrt.transport.linktable import LinkTable
from meshrt.transport.outlink import OutLink
from meshrt.transport.pending import Finishing
from meshrt.transport.tree import Tree
from meshrt.wire.frames import Buffer

__all__ = ["LOOP_LIMIT", "THREAD_LIMIT", "Queues", "Written"]

#: Bytes that may wait for a slow rank without making the caller wait.
THREAD_LIMIT = 1 << 20
#: Bytes of memory that the queue of one link may take before an event loop is refused a call there.
LOOP_LIMIT = 64 << 20
#: Seconds after which buffers that a slow rank has not read are copied: a rank that reads is faster than a copy.
_COPY_AFTER = 0.005


class Written:
    """Finished when these links have written what they had.

    Attributes:
        since: When the wait began, monotonic ns.
    """

    def __init__(self, outs: list[OutLink]) -> None:
        self._outs = outs
        self.since: int = time.monotonic_ns()

    @property
    def finished(self) -> bool:
        return not self.slow

    @property
    def slow(self) -> list[OutLink]:
        """The links that have not."""
        return [out for out in self._outs if out.waiting_bytes() and out.fate is None]


class _Reads(Protocol):
    """What the queues need of `meshrt.transport.waiting.Waiting`."""

    def wait(self, pending: Finishing, timeout: float | None) -> bool: ...
    def wake(self) -> None: ...
    def poll_nowait(self) -> None: ...


class _AfterWriting(msgspec.Struct, frozen=True, eq=False):
    written: Callable[[], bool]
    deadline: float
    action: Callable[[float], None]


class Queues:
    """The queues of all outgoing links. Any thread, unless said otherwise.

    Args:
        table: The links.
        tree: Calls after a while.
        reads: Writes what is queued, while a thread waits or at once.

    Attributes:
        full: Links that have reached `LOOP_LIMIT`, and maybe no longer have (`busy`). Empty: no call is refused.
        actions: Functions to call when certain bytes have been written.
    """

    def __init__(self, table: LinkTable, tree: Tree, reads: _Reads) -> None:
        self._table = table
        self._tree = tree
        self._reads = reads
        self.full: set[OutLink] = set()
        self.actions: list[_AfterWriting] = []

    def settle(self, outs: list[OutLink], parts: list[Buffer], *, block: bool) -> None:
        """Make the caller's buffers its own again: wait until they are written, or copy what is left of them.

        Args:
            block: Whether this thread may wait (it may not on an event loop).
        """
        slow = [out for out in outs if out.waiting_bytes()]
        if not slow:
            return
        if not block:
            self.full.update(out for out in slow if out.memory() >= LOOP_LIMIT)
        if block and any(out.waiting_bytes() > THREAD_LIMIT for out in slow):
            self._reads.wait(Written(slow), None)
        elif len(parts) > 1 and not (block and self._reads.wait(Written(slow), _COPY_AFTER)):
            for out in slow:
                if not self._keep(out):
                    # On an event loop, too: the alternative is to send changed bytes.
                    self._reads.wait(Written([out]), None)

    def _keep(self, out: OutLink) -> bool:
        """Copy what is queued on a link. Returns False if there is no memory for that."""
        try:
            with self._table.lock:
                if out.early is not None:
                    out.early.keep()
        except MemoryError:
            return False
        return out.link is None or out.link.keep_backlog()

    def busy(self, outs: list[OutLink]) -> dict[int, int]:
        """Return for which ranks an event loop is refused a call: position -> bytes of memory that its queue takes."""
        found: dict[int, int] = {}
        for position, out in enumerate(outs):
            if out in self.full:
                if out.link is not None:
                    out.link.flush()
                memory = out.memory()
                if memory >= LOOP_LIMIT and out.fate is None:
                    found[position] = memory
                else:
                    self.full.discard(out)
        return found

    def has_room(self, outs: list[OutLink]) -> bool:
        """Whether so little is queued that a thread that calls would not wait. Ranks that have ended have room."""
        return all(out.memory() <= THREAD_LIMIT or out.fate is not None for out in outs)

    def unwritten(self, mesh_id: str) -> set[int]:
        """Return the ranks of a mesh to which something was sent that has not left this process."""
        links = list(self._table.by_key.items())
        return {key[1] for key, out in links if key[0] == mesh_id and out.waiting_bytes() and out.fate is None}

    def when_room(self, outs: list[OutLink], action: Callable[[], None]) -> Callable[[], None]:
        """Call ``action`` when these links have room, on the thread that reads and writes: it must not block.

        Returns:
            A function after which it is not called any more.
        """
        waiting = _AfterWriting(lambda: self.has_room(outs), math.inf, lambda _seconds: action())
        self._add(waiting)

        def forget() -> None:
            with self._table.lock, contextlib.suppress(ValueError):
                self.actions.remove(waiting)

        return forget

    def when_written(self, mesh_id: str, seconds: float, action: Callable[[float], None]) -> None:
        """Call ``action(seconds left)`` when nothing that was sent to a mesh waits here, or when no seconds are left.

        At once if that is so; otherwise on the thread that reads and writes, or that of `Tree.call_later`: it must not
        block.
        """
        if seconds <= 0 or not self.unwritten(mesh_id):
            action(seconds)
            return
        waiting = _AfterWriting(lambda: not self.unwritten(mesh_id), time.monotonic() + seconds, action)
        self._add(waiting)
        self._tree.call_later(seconds, lambda: self._call(waiting))

    def when_read(self, action: Callable[[], None]) -> None:
        """Call ``action`` when the answers that were read are delivered, on the thread that reads: it must not block.

        While no thread waits, that is the next one that looks.
        """
        self._add(_AfterWriting(lambda: True, math.inf, lambda _seconds: action()))

    def _add(self, waiting: _AfterWriting) -> None:
        self.actions.append(waiting)
        # Looked at after it is in the list: what is written from here on is noticed.
        self._reads.wake()
        self._reads.poll_nowait()

    def call_due(self) -> None:
        """Call the actions whose bytes are written. The lead is held."""
        for waiting in tuple(self.actions):
            if waiting.written():
                self._call(waiting)

    def _call(self, waiting: _AfterWriting) -> None:
        with self._table.lock:
            if waiting not in self.actions:
                return
            self.actions.remove(waiting)
        waiting.action(max(0.0, waiting.deadline - time.monotonic()))

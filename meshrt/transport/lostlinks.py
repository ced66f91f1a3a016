"""The ends of ranks: their links are marked lost, and the calls that wait for answers there fail.

Two steps, so that one error names all ranks that ended together:

1. `mark_lost`: the control tree tells how a rank has ended. Any thread.
2. `fail_pending`: the leading thread delivers what marked ranks have written before they ended, then fails the calls
   that still wait for them. Within `together` it comes at the end of the block.

The leading thread itself marks a link that has been disconnected for too long. Where another process takes the place of
the rank, its link becomes idle: what was sent is lost, the next call connects to that process. So does a link to
another machine whose connection was lost, while that machine is not: the next call may find another way to it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from meshrt.errors import ProtocolError
from meshrt.hooks.fate import Fate
from meshrt.transport.disconnects import Disconnects
from meshrt.transport.linktable import LinkTable
from meshrt.transport.outlink import Early, Loss, OutLink, Receiver
from meshrt.transport.reading import Reader
from meshrt.transport.tree import Tree
from meshrt.wire.handshake import UNKNOWN_PEER

__all__ = ["LostLinks"]


class LostLinks:
    """Marks links as lost, and fails what waits for their answers.

    Args:
        table: The links.
        tree: Tells how a rank has ended.
        disconnects: Those that may be overdue.
        reader: Delivers what a rank has written before it ended.
        full: Links with a full queue (`meshrt.transport.queues.Queues.full`): those that are lost are removed.
        look: Calls `apply`, on this thread or on the leading one; returns False when the driver is closed.

    Attributes:
        marked: Links that are to be lost, and why.
        collecting: More are about to be marked: they are lost together.
    """

    def __init__(
        self,
        table: LinkTable,
        tree: Tree,
        disconnects: Disconnects,
        reader: Reader,
        full: set[OutLink],
        look: Callable[[], bool],
    ) -> None:
        self._table = table
        self._tree = tree
        self._disconnects = disconnects
        self._reader = reader
        self._full = full
        self._look = look
        self.marked: deque[tuple[OutLink, Fate]] = deque()
        self.collecting: bool = False

    def watch(self, out: OutLink) -> None:
        """Mark a link as lost when its rank ends. Any thread."""
        self._tree.watch(out.key[0], out.key[1], lambda fate: self.mark_lost(out, fate))

    def mark_lost(self, out: OutLink, fate: Fate) -> None:
        """The rank of this link has ended. Takes effect with `fail_pending`. Any thread."""
        self.marked.append((out, fate))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """All that are marked in the block are lost together: a call that they fail names all of them. One thread."""
        self.collecting = True
        try:
            yield
        finally:
            self.collecting = False
            self.fail_pending()

    def fail_pending(self) -> None:
        """Deliver what lost ranks wrote, then fail the calls that wait for them. Any thread."""
        if self.marked and not self.collecting:
            self._look()

    def apply(self) -> None:
        """Lose the links that are marked, or overdue. The lead is held."""
        if self.collecting:
            return  # the end of the block calls again
        losses: dict[Receiver, list[Loss]] = {}
        for out in self._disconnects.overdue():
            fate = Fate("link", hint=out.trouble)
            if out.elsewhere:
                self._reopen(out, fate, losses)
            else:
                self.marked.append((out, fate))
        while self.marked:
            out, fate = self.marked.popleft()
            self._disconnects.remove(out)
            if out.fate is None:
                self._lose(out, fate, losses)
            elif out.fate.kind == "link":
                # The connection ended first, and the reason is known now: the next caller gets it.
                if fate.restarts:
                    self._restart(out, fate, losses)
                else:
                    out.fate = fate
                    self._table.lost(out)
        for receiver, lost in losses.items():
            receiver.lose(lost)

    def _lose(self, out: OutLink, fate: Fate, losses: dict[Receiver, list[Loss]]) -> None:
        opened = out.early is None
        if opened and not out.disconnected:
            with contextlib.suppress(ProtocolError):  # only the answers before it can be delivered
                self._reader.drain(out)
        self._table.release(out)
        if fate.restarts:
            self._restart(out, fate, losses, opened)
            return
        with self._table.lock:
            out.fate = fate
            out.early = None
            self._table.unregister(out)  # it may have been connected since
        self._full.discard(out)
        if out.link is not None:
            out.link.close()
        if fate.kind != "link":  # else its rank may have been started again, which is not known yet
            self._table.lost(out)
        self._take_pending(out, fate, losses, opened)

    def _restart(self, out: OutLink, fate: Fate, losses: dict[Receiver, list[Loss]], opened: bool = True) -> None:
        """A process takes the place of the rank: what was sent is lost, the next call connects to it."""
        self._make_idle(out, fate)
        self._take_pending(out, fate, losses, opened)
        self.watch(out)

    def _reopen(self, out: OutLink, fate: Fate, losses: dict[Receiver, list[Loss]]) -> None:
        """The connection to a rank was lost, and both machines live: what was sent is lost, the next call connects."""
        opened = out.early is None
        self._disconnects.remove(out)
        self._make_idle(out)
        self._take_pending(out, fate, losses, opened)

    def _make_idle(self, out: OutLink, replaced: Fate | None = None) -> None:
        with self._table.lock:
            link = out.link
            self._table.unregister(out)  # as above
            # First: `Driver.send` notes the call in `outstanding`, and looks at `early` after that. A call that is sent
            # at this very moment may be lost below and run all the same; its caller is told that it may have.
            out.early = Early()
            out.idle, out.stopped, out.writing, out.disconnected = True, False, False, False
            out.link = out.handshake = out.fate = out.search = None
            out.refusals = 0
            if replaced is not None:
                out.server, out.before = UNKNOWN_PEER, replaced
        if link is not None:
            link.close()

    @staticmethod
    def _take_pending(out: OutLink, fate: Fate, losses: dict[Receiver, list[Loss]], opened: bool) -> None:
        """Add the calls that wait for a link to ``losses``, by receiver. ``opened``: they may have reached the rank."""
        while out.outstanding:
            _, (receiver, position) = out.outstanding.popitem()
            losses.setdefault(receiver, []).append(Loss(position, fate, sent=opened))

"""The outgoing links of a process, put together: calls are sent here, and whatever is ready on a link is done here.

* `linktable`: the links, and which sockets the kernel is asked for. The states of a link: `outlink`.
* `dialling`: connecting. `reading`: the handshake, answers, links that become idle.
* `disconnects`, `lostlinks`: connections and ranks that have ended, and the calls that fail by that.
* `queues`: what a rank has not taken yet, its limits, and what happens when it is written.
* `waiting` (the base class): which thread reads, and when.

The order: the links, what is queued on them, connecting, reading, losing. Each part is given those before it.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Collection

from meshrt.errors import ProtocolError
from meshrt.hooks.fate import Fate
from meshrt.transport.connecting import Connector
from meshrt.transport.dialling import Dialler
from meshrt.transport.disconnects import Disconnects
from meshrt.transport.expiry import Expiry
from meshrt.transport.link import SILENCE_LOOK_SECONDS
from meshrt.transport.linktable import LinkTable
from meshrt.transport.lostlinks import LostLinks
from meshrt.transport.outlink import Loss, OutLink, Receiver
from meshrt.transport.queues import Queues
from meshrt.transport.reading import Reader
from meshrt.transport.tree import Tree
from meshrt.transport.waiting import Waiting
from meshrt.wire.addresses import RankAddress
from meshrt.wire.frames import Buffer, Frame
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import PORTS

__all__ = ["Driver"]

#: Seconds between two looks for answers while no thread waits for any.
_UNREAD_SECONDS = SILENCE_LOOK_SECONDS


def _no_shared_memory(_frame: Frame) -> Frame:
    raise ProtocolError("an answer in shared memory, which this process cannot access")


def _own_pid() -> Identity:
    return Identity(0, 0, os.getpid())


class Driver(Waiting):
    """All outgoing links of this process. Any thread.

    Args:
        secret: What each side of a link proves to hold.
        tree: Tells of starts and ends of ranks, and polls in the background.
        claim: Takes the shared memory of an answer.
        identity: Returns the identity of this process for processes that share memory with it.
        connector: Makes the connections; without it, to ranks of this machine only.

    Attributes:
        queues: Messages that were sent and not written yet.
        lost: Marks links as lost, and fails the calls that wait there.
        expiry: Ends calls whose time has passed.
        full: `Queues.full`. Empty: no call is refused.
    """

    def __init__(
        self,
        secret: bytes,
        tree: Tree,
        claim: Callable[[Frame], Frame] = _no_shared_memory,
        identity: Callable[[], Identity] = _own_pid,
        connector: Connector | None = None,
    ) -> None:
        super().__init__(tree.switch)
        self._tree = tree
        self.expiry: Expiry = Expiry(self.clock, tree.call_later)
        table = LinkTable(self._epoll, self.background)
        self.queues: Queues = Queues(table, tree, self)
        disconnects = Disconnects(table, tree, self._look)
        self._dialler = Dialler(connector or Connector(), secret, identity, tree, table, disconnects, self.wake)
        self._reader = Reader(table, self._dialler, disconnects, claim, self.background)
        self.lost: LostLinks = LostLinks(table, tree, disconnects, self._reader, self.queues.full, self._look)
        self._table = table
        self._disconnects = disconnects
        #: An answer that no thread waits for is looked for soon.
        self._collects = False
        # Used for each message: the parts' own objects, without a way through the parts.
        self._links = table.by_key
        self._links_lock = table.lock
        self._by_fd = table.by_fd
        self._read = self._reader.read
        self._marked = self.lost.marked
        self._deadlines = disconnects.deadlines
        self._actions = self.queues.actions
        self.full: set[OutLink] = self.queues.full

    # -- links

    def link_to(self, key: tuple[str, int, str], address: RankAddress) -> OutLink:
        """Return the link to ``key`` (mesh id, rank, actor), whose rank listens (or will listen) at ``address``."""
        out = self._links.get(key)
        if out is None:
            out, new = self._table.obtain(key, address)
            if new:
                self._dialler.connect(out)
                self.lost.watch(out)
        return out

    def outstanding(self) -> dict[int, Receiver]:
        """Return the receivers that wait for answers, by the number of the call."""
        links = [out for out in self._table.all() if out.key[2] != PORTS]
        return {call_id: owed[0] for out in links for call_id, owed in out.outstanding.copy().items()}

    def owed_by(self, mesh_id: str, rank: int) -> list[Receiver]:
        """Return the oldest call of this process to each actor of a rank that waits for an answer."""
        links = [out for key, out in tuple(self._links.items()) if key[:2] == (mesh_id, rank) and key[2] != PORTS]
        calls = [out.outstanding.copy() for out in links]
        return [next(iter(each.values()))[0] for each in calls if each]

    def receivers(self, outs: list[OutLink], *, block: bool) -> list[Identity] | None:
        """Return the processes behind some links; those that have ended are left out.

        Args:
            block: Whether this thread may wait until the ranks listen.
        Returns:
            None: They are not known yet.
        """
        for out in outs:
            if out.idle and not out.server.pid:  # its rank was started again: its process is not known yet
                self._dialler.leave_idle(out)
        opened = _Opened(outs)
        if not opened.finished:
            if not block:
                return None
            self.wait(opened, None)
        return [out.server for out in outs if out.server.pid]

    def forget(self, mesh_id: str) -> None:
        """Remove the links to a mesh that is stopped; their calls have failed before."""
        self.full.difference_update(self._table.remove(mesh_id))

    # -- sending

    def send(
        self,
        out: OutLink,
        parts: list[Buffer],
        call_id: int,
        receiver: Receiver | None,
        position: int,
        only: Collection[int] | None = None,
    ) -> bool:
        """Send one call; its answer goes to ``receiver``. Never blocks; False: `Queues.settle` has something to do.

        Args:
            only: Pids of the processes that it can be of use to. It is not sent to a process that has taken the place
                of one of them: it is lost by the end of that one, and surely did not run.
        """
        if receiver is not None:
            out.outstanding[call_id] = (receiver, position)
            if not self._collects:
                self._collect_later()
        if out.fate is not None:
            _fail(out, call_id, out.fate)
            return True
        if out.early is not None:
            with self._links_lock:
                early = out.early if _replaced(out, only) is None else None
                if early is not None:
                    early.append(parts)
                    self.background(out, True)
                    idle, out.idle = out.idle, False
            if early is not None:
                if idle:
                    self._dialler.connect(out)
                return False
        link = out.link
        replaced = _replaced(out, only)
        if replaced is not None:
            _fail(out, call_id, replaced)
        elif link is not None and not link.send(parts):
            self._table.want_write(out)
            return False
        return True

    def _collect_later(self) -> None:
        self._collects = True
        self._tree.call_later(_UNREAD_SECONDS, self._collect)

    def _collect(self) -> None:
        """Read the answers that no thread waits for: they may keep shared memory for a future that was dropped."""
        self._collects = False
        if not self.closed:
            self.poll_nowait()
            waiting = [out for out in tuple(self._links.values()) if out.outstanding]
            for out in waiting:
                link = out.link
                if out.elsewhere and link is not None and link.is_silent():
                    self._reader.lost_touch(out, link)
            if waiting:
                self._collect_later()

    # -- reading (the lead is held)

    def _poll(self, timeout: float | None) -> None:
        if self._deadlines:
            soonest = self._disconnects.seconds_left()
            timeout = soonest if timeout is None else min(timeout, soonest)
        if self._marked and not self.lost.collecting:
            timeout = 0
        read, by_fd = self._read, self._by_fd
        for fd, event in self._epoll.poll(timeout):
            out = by_fd.get(fd)
            if out is None:
                if fd == self._wake_fd:
                    self._woken()
                continue
            if event & select.EPOLLOUT:
                self._table.write(out)
            if event & ~select.EPOLLOUT:
                read(out)
        if self._marked or self._deadlines:
            self.lost.apply()
        if self._actions:
            self.queues.call_due()

    def _look(self) -> bool:
        """Have this thread, or the one that leads now, look at what is due. Returns False when the driver is closed."""
        if self.closed:
            return False
        self.wake()
        self.poll_nowait()
        return True

    # -- the end

    def close(self) -> None:
        """Close every link at the end of the process's part in the program."""
        self.closed = True
        for out in self._table.clear():
            if out.link is not None:
                out.link.close()
        self._close_poll()

    def abandon(self) -> None:
        """Close the descriptors in a forked child, where every lock may be held by a thread that is not there."""
        self.forked = True
        for out in list(self._links.values()):
            if out.link is not None:
                out.link.sock.close()
        self._close_poll()


def _fail(out: OutLink, call_id: int, fate: Fate) -> None:
    """Fail a call at once: its rank has ended."""
    owed = out.outstanding.pop(call_id, None)
    if owed is not None:
        receiver, position = owed
        receiver.lose([Loss(position, fate, sent=False)])


def _replaced(out: OutLink, only: Collection[int] | None) -> Fate | None:
    """Return how the process has ended that something was for, if another one has taken its place."""
    return out.before if only is not None and out.server.pid not in only else None


class _Opened:
    """Finished when these links are open, or never will be."""

    def __init__(self, outs: list[OutLink]) -> None:
        self._outs = outs

    @property
    def finished(self) -> bool:
        return all(out.server.pid or out.fate is not None for out in self._outs)

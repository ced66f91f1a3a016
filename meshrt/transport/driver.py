"""The outgoing links of a process: connecting, sending, reading, and what becomes of the calls of a rank that is gone.

Rules (who reads, and when: `meshrt.transport.waiting`):

* A link: ``handshake -> open -> gone``. Frames sent before it is open are queued on it.
* A rank says that an actor was stopped, and goes on to answer; the caller closes the link as soon as it is owed nothing
  there (``asleep``), and opens it again for the next call: no call is ever sent to somebody who does not read any more.
* End of stream is no death: the link becomes a **suspect**, and its calls fail when its rank's fate is known (the
  caller is told through the control tree), or as LinkLost after `SUSPECT_SECONDS`.
* Death first: what the rank wrote before it died is read and delivered, then the rest fails.
* What a rank does not take is queued. A thread that has queued more than `_QUEUE_LIMIT` waits; an event loop must not
  wait, and is refused a call (`busy`) where `LOOP_LIMIT` is reached.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from meshrt.errors import AuthenticationError, ProtocolError
from meshrt.transport.fate import Fate
from meshrt.transport.link import LATER, Link, peer_of
from meshrt.transport.outlink import Early, Loss, OutLink, Receiver
from meshrt.transport.waiting import Waiting
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import NOBODY, ROLE_DATA, ClientHandshake, Identity
from meshrt.wire.messages import STATE, STORED

__all__ = ["LOOP_LIMIT", "SUSPECT_SECONDS", "Driver", "Tree"]

#: How long a closed connection may stay without a word about its rank's death.
SUSPECT_SECONDS = 2.0
#: Bytes that may wait for a slow rank without making the caller wait.
_QUEUE_LIMIT = 1 << 20
#: Bytes of memory that the queue of one link may take before an event loop is refused a call there.
LOOP_LIMIT = 64 << 20
#: Seconds after which what a slow rank has not taken is copied instead: a rank that reads is faster than a copy.
_COPY_AFTER = 0.005
#: Seconds that a `connect` may wait for a place in the rank's backlog.
_CONNECT_SECONDS = 10
#: Seconds until it is tried again where something is short that it takes: memory, descriptors, time.
_CONNECT_AGAIN = 0.1
_SHORT = LATER | {errno.EMFILE, errno.ENFILE, errno.ENOSPC}
#: Seconds between two looks for answers while nobody waits for any.
_UNREAD_SECONDS = 1.0
#: How often a rank is dialled that hangs up before it was proved who calls.
_DIALS = 5


class Tree(Protocol):
    """The control tree, as far as the links need it."""

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[], None]) -> None:
        """Call back when a rank listens (at once if it does, or has ended). Any thread."""

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        """Call back with a rank's fate when it ends (at once if it has), then call `Driver.execute`. Any thread."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call ``function`` after ``seconds``, on a thread that must not be blocked. Any thread."""

    def switch(self, on: bool) -> None:
        """Lend or take back a thread that calls `Driver.poll_nowait` when `Driver.fileno` is ready. Any thread."""


@dataclass(frozen=True, eq=False)
class _AfterWriting:
    written: Callable[[], bool]
    deadline: float
    action: Callable[[float], None]


class Driver(Waiting):
    """All outgoing links of this process. Any thread.

    Args:
        secret: What each side of a link proves to hold.
        tree: Tells of births and deaths, and lends the background.
    """

    def __init__(self, secret: bytes, tree: Tree) -> None:
        super().__init__(tree.switch)
        self._secret = secret
        self._tree = tree
        #: Takes what has come with an answer in shared memory.
        self.claim: Callable[[Frame], Frame] = _not_claimed
        #: Returns who this process is to those that share memory with it.
        self.identity: Callable[[], Identity] = lambda: Identity(0, 0, os.getpid())
        self._links: dict[tuple[str, int, str], OutLink] = {}
        self._by_fd: dict[int, OutLink] = {}
        self._links_lock = threading.Lock()
        self._condemned: deque[tuple[OutLink, Fate]] = deque()
        #: More of them come at once.
        self._condemning = False
        self._suspects: dict[OutLink, float] = {}
        self._look_planned = False
        #: A look for answers that nobody waits for is planned.
        self._collects = False
        #: What waits until something that was sent has been written.
        self._unwritten: list[_AfterWriting] = []
        #: Links that have reached `LOOP_LIMIT`, and maybe no longer have: see `busy`. Empty: no call is refused.
        self.full: set[OutLink] = set()

    # -- sending

    def link_to(self, key: tuple[str, int, str], path: str) -> OutLink:
        """Return the link to ``key`` (mesh id, rank, actor), whose rank listens (or will listen) at ``path``."""
        out = self._links.get(key)
        if out is not None:
            return out
        with self._links_lock:
            out = self._links.get(key)
            if out is not None:
                return out
            out = self._links[key] = OutLink(key, path)
        self._open(out)
        self._watch(out)
        return out

    def _watch(self, out: OutLink) -> None:
        self._tree.watch(out.key[0], out.key[1], lambda fate: self.condemn(out, fate))

    def _open(self, out: OutLink) -> None:
        if self._connect(out) is not None:
            # Not born yet, or gone: the tree knows which.
            self._tree.when_born(out.key[0], out.key[1], lambda: self._connect_again(out))

    def _connect(self, out: OutLink) -> OSError | None:
        """Dial; returns what has failed."""
        handshake = ClientHandshake(self._secret, ROLE_DATA, "/".join(map(str, out.key)), self.identity())
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            return error
        try:
            # A time-out of Python's own would make the socket non-blocking: a full backlog is an error at once then.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECT_SECONDS, 0))
            sock.connect(out.path)
            uid = peer_of(sock)[1]
            if uid < 0:  # it waited for a place in the backlog, a signal came, and Python takes that for a connection
                raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
            if uid != os.geteuid():
                raise AuthenticationError(f"{out.path} is served by another user")
            sock.send(handshake.hello())
            self._listen(out, Link(sock), handshake)
        except OSError as error:
            sock.close()
            return error
        except BaseException:
            sock.close()
            raise
        return None

    def _listen(self, out: OutLink, link: Link, handshake: ClientHandshake) -> None:
        with self._links_lock:
            out.handshake, out.link = handshake, link
            self._by_fd[link.fileno()] = out
            try:
                self._epoll.register(link.fileno(), select.EPOLLIN)
            except OSError:
                del self._by_fd[link.fileno()]
                out.handshake = out.link = None
                raise

    def _connect_again(self, out: OutLink, until: float = 0.0) -> None:
        """Dial a rank that listens, or has ended; where something is short, again and again for a while."""
        error = self._connect(out) if out.fate is None else None
        if error is None:
            return
        if error.errno in _SHORT:
            out.trouble = f"could not be connected to: {error.strerror}"
            until = until or time.monotonic() + SUSPECT_SECONDS
            if time.monotonic() < until:
                self._tree.call_later(_CONNECT_AGAIN, lambda: self._connect_again(out, until))
                return
        self._suspect(out)
        self.wake()

    def outstanding(self) -> dict[int, Receiver]:
        """Return who waits for answers, by the number of the call. Any thread."""
        with self._links_lock:
            links = tuple(self._links.values())
        return {call_id: owed[0] for out in links for call_id, owed in out.outstanding.copy().items()}

    def send(
        self,
        out: OutLink,
        parts: list[Any],
        call_id: int,
        receiver: Receiver | None,
        position: int,
        only: Collection[int] | None = None,
    ) -> bool:
        """Send one call; its answer goes to ``receiver``. Never blocks; False: `settle` has something to do.

        Args:
            only: Pids of those that it can be of use to. To a process that has taken the place of one of them it is not
                sent: it is lost by the end of that one, and surely did not run.
        """
        if receiver is not None:
            out.outstanding[call_id] = (receiver, position)
            if not self._collects:
                self._collect_later()
        if out.fate is not None:
            self._refuse(out, call_id, out.fate)
            return True
        if out.early is not None:
            with self._links_lock:
                early = out.early if _replaced(out, only) is None else None
                if early is not None:
                    early.append(parts)
                    self.background(out, True)
                    asleep, out.asleep = out.asleep, False
            if early is not None:
                if asleep:
                    self._open(out)
                return False
        link = out.link
        replaced = _replaced(out, only)
        if replaced is not None:
            self._refuse(out, call_id, replaced)
        elif link is not None and not link.send(parts):
            self._want_write(out)
            return False
        return True

    def _collect_later(self) -> None:
        self._collects = True
        self._tree.call_later(_UNREAD_SECONDS, self._collect)

    def _collect(self) -> None:
        """Read the answers that nobody waits for: they may keep shared memory for a future that was dropped."""
        self._collects = False
        if not self.closed:
            self.poll_nowait()
            if any(out.outstanding for out in tuple(self._links.values())):
                self._collect_later()

    @staticmethod
    def _refuse(out: OutLink, call_id: int, fate: Fate) -> None:
        """Nobody is there for a call."""
        owed = out.outstanding.pop(call_id, None)
        if owed is not None:
            receiver, position = owed
            receiver.lose([Loss(position, fate, sent=False)])

    def _rouse(self, out: OutLink) -> None:
        """Open a link again that is asleep, though nothing is to be sent yet."""
        with self._links_lock:
            asleep, out.asleep = out.asleep, False
        if asleep:
            self._open(out)

    def _want_write(self, out: OutLink) -> None:
        with self._links_lock:
            if out.link is not None and not out.writing and self._by_fd.get(out.link.fileno()) is out:
                out.writing = True
                self._epoll.modify(out.link.fileno(), select.EPOLLIN | select.EPOLLOUT)
                self.background(out, True)

    def settle(self, outs: list[OutLink], parts: list[Any], *, block: bool) -> None:
        """Make the caller's buffers its own again: wait until they are written, or copy what is left of them.

        Args:
            block: Whether this thread may wait (it may not on an event loop).
        """
        slow = [out for out in outs if out.waiting_bytes()]
        if not slow:
            return
        if not block:
            self.full.update(out for out in slow if out.memory() >= LOOP_LIMIT)
        if block and any(out.waiting_bytes() > _QUEUE_LIMIT for out in slow):
            self.wait(Written(slow), None)
        elif len(parts) > 1 and not (block and self.wait(Written(slow), _COPY_AFTER)):
            for out in slow:
                if not self._keep(out):
                    self.wait(Written([out]), None)  # on an event loop, too: the alternative is to send changed bytes

    def _keep(self, out: OutLink) -> bool:
        """Copy what is queued on a link. Returns False if there is no memory for that."""
        try:
            with self._links_lock:
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
        return all(out.memory() <= _QUEUE_LIMIT or out.fate is not None for out in outs)

    def when_room(self, outs: list[OutLink], action: Callable[[], None]) -> Callable[[], None]:
        """Call ``action`` when these links have room, on the thread that reads and writes: it must not block.

        Returns:
            A function after which it is not called any more.
        """
        waiting = _AfterWriting(lambda: self.has_room(outs), math.inf, lambda _seconds: action())
        self._await_writing(waiting)

        def forget() -> None:
            with self._links_lock, contextlib.suppress(ValueError):
                self._unwritten.remove(waiting)

        return forget

    def receivers(self, outs: list[OutLink], *, block: bool) -> list[Identity] | None:
        """Return who is behind some links; those that have ended are left out.

        Args:
            block: Whether this thread may wait until the ranks are born.
        Returns:
            None: They are not known yet.
        """
        for out in outs:
            if out.asleep and not out.server.pid:  # its rank was started again: nobody is known there yet
                self._rouse(out)
        opened = _Opened(outs)
        if not opened.finished:
            if not block:
                return None
            self.wait(opened, None)
        return [out.server for out in outs if out.server.pid]

    def unwritten(self, mesh_id: str, rank: int | None = None) -> bool:
        """Whether something that was sent to a mesh, or to one rank of it, has not left this process. Any thread."""
        links = list(self._links.items())
        outs = [out for key, out in links if key[0] == mesh_id and (rank is None or key[1] == rank)]
        return any(out.waiting_bytes() and out.fate is None for out in outs)

    def when_written(self, mesh_id: str, seconds: float, action: Callable[[float], None]) -> None:
        """Call ``action(seconds left)`` when nothing that was sent to a mesh waits here, or when no seconds are left.

        At once if that is so; otherwise on the thread that reads and writes, or that of `Tree.call_later`: it must not
        block. Any thread.
        """
        if seconds <= 0 or not self.unwritten(mesh_id):
            action(seconds)
            return
        waiting = _AfterWriting(lambda: not self.unwritten(mesh_id), time.monotonic() + seconds, action)
        self._await_writing(waiting)
        self._tree.call_later(seconds, lambda: self._written(waiting))

    def _await_writing(self, waiting: _AfterWriting) -> None:
        self._unwritten.append(waiting)
        # Looked at after it is in the list: what is written from here on is noticed.
        self.wake()
        self.poll_nowait()

    def _written(self, waiting: _AfterWriting) -> None:
        with self._links_lock:
            if waiting not in self._unwritten:
                return
            self._unwritten.remove(waiting)
        waiting.action(max(0.0, waiting.deadline - time.monotonic()))

    # -- reading (the lead is held)

    def _poll(self, timeout: float | None) -> None:
        if self._suspects:
            soonest = max(0.0, min(self._suspects.values()) - time.monotonic())
            timeout = soonest if timeout is None else min(timeout, soonest)
        if self._condemned and not self._condemning:
            timeout = 0
        for fd, event in self._epoll.poll(timeout):
            out = self._by_fd.get(fd)
            if out is None:
                if fd == self._wake_fd:
                    self._woken()
                continue
            if event & select.EPOLLOUT:
                self._writable(out)
            if event & ~select.EPOLLOUT:
                self._readable(out)
        if self._condemned or self._suspects:
            self._sentence()
        for waiting in tuple(self._unwritten):
            if waiting.written():
                self._written(waiting)

    def _readable(self, out: OutLink) -> None:
        link = out.link
        if link is None:
            return
        try:
            frames = link.read() if out.handshake is None else self._shake(out, link, out.handshake)
        except (ProtocolError, MemoryError):  # not even a few bytes can be read
            self._suspect(out)
            return
        if frames is None:
            if out.handshake is None or not self._dial_again(out, link):
                self._suspect(out)
            return
        try:
            self._dispatch(out, frames)
        except ProtocolError:
            self._suspect(out)
            return
        if out.stopped and not out.outstanding:
            self._fall_asleep(out, link)

    def _dial_again(self, out: OutLink, link: Link) -> bool:
        """The rank has hung up before anything was sent to it: it waits only so long for a caller to prove itself, and
        one of the two had no time. Returns whether it is dialled once more."""
        self._unlist(out)
        link.close()
        out.refusals += 1
        return out.refusals < _DIALS and self._connect(out) is None

    def _fall_asleep(self, out: OutLink, link: Link) -> None:
        """Close the link to a stopped actor, unless it is in use."""
        with self._links_lock:
            # First: who sends notes the call in `outstanding`, and looks at `early` after that.
            out.early = Early()
            if out.outstanding or not link.at_rest():
                out.early = None
                return
            self._forget_fd(out)
            out.asleep, out.stopped, out.writing = True, False, False
        link.close()

    def _dispatch(self, out: OutLink, frames: list[Frame]) -> None:
        outstanding = out.outstanding
        for frame in frames:
            if frame.kind & STORED:
                frame = self.claim(frame)
            try:
                entry = outstanding.pop(frame.header[0], None)
            except (TypeError, LookupError) as error:
                raise ProtocolError(f"an answer that does not say to what: {error}") from None
            if entry is not None:
                entry[0].deliver(entry[1], frame)
            elif frame.kind == STATE:
                out.stopped = len(frame.header) > 1 and bool(frame.header[1])

    def _shake(self, out: OutLink, link: Link, handshake: ClientHandshake) -> list[Frame] | None:
        try:
            data = link.sock.recv(256)
        except OSError as error:
            return [] if error.errno in LATER else None
        if not data:
            return None
        proof = handshake.receive_data(data)
        if proof:
            link.send([proof])
        if not handshake.done:
            return []
        if out.server.pid not in (0, handshake.server.pid):
            # What was sent before is lost first, when the end of that one is heard of.
            raise ProtocolError(f"process {handshake.server.pid} has taken the place of {out.server.pid}")
        out.server = handshake.server
        out.refusals = 0
        with self._links_lock:
            for parts in out.early.messages if out.early is not None else ():
                link.send(parts)
            out.handshake = out.early = None
        if not link.backlog:
            self.background(out, False)
        else:
            self._want_write(out)
        return link.feed(handshake.leftover) if handshake.leftover else []

    def _writable(self, out: OutLink) -> None:
        link = out.link
        if link is not None and link.flush():
            with self._links_lock:
                if out.writing and not link.backlog:
                    out.writing = False
                    self._epoll.modify(link.fileno(), select.EPOLLIN)
                    self.background(out, False)

    def _forget_fd(self, out: OutLink) -> None:
        self._unlist(out)
        self.background(out, False)

    def _unlist(self, out: OutLink) -> None:
        """Read the link no more, if it is read. The number of one that is closed may be another one's by now."""
        if out.link is not None and self._by_fd.get(out.link.fileno()) is out:
            del self._by_fd[out.link.fileno()]
            with contextlib.suppress(OSError):
                self._epoll.unregister(out.link.fileno())

    def _suspect(self, out: OutLink) -> None:
        self._forget_fd(out)
        if not out.eof and out.fate is None:
            out.eof = True
            self._suspects[out] = time.monotonic() + SUSPECT_SECONDS
            self._plan_look()

    def _plan_look(self) -> None:
        # A waiting thread looks by itself; whoever awaits, or is to be called back, waits for a descriptor.
        if not self._look_planned:
            self._look_planned = True
            self._tree.call_later(SUSPECT_SECONDS + 0.01, self._look_at_suspects)

    def _look_at_suspects(self) -> None:
        self._look_planned = False
        if self._suspects and not self.closed:
            self.wake()
            self.poll_nowait()
            if self._suspects:
                self._plan_look()

    def condemn(self, out: OutLink, fate: Fate) -> None:
        """The rank of this link is gone. Takes effect with `execute`, so that many are told at once. Any thread."""
        self._condemned.append((out, fate))

    @contextlib.contextmanager
    def condemning(self) -> Iterator[None]:
        """All that are condemned in the block are so at once: who owed something names all of them. One thread."""
        self._condemning = True
        try:
            yield
        finally:
            self._condemning = False
            self.execute()

    def execute(self) -> None:
        """Deliver what condemned ranks wrote, then fail what they owe. Any thread."""
        if self._condemned and not self._condemning and not self.closed:
            self.wake()
            self.poll_nowait()

    def _sentence(self) -> None:
        if self._condemning:
            return  # its end comes here
        now = time.monotonic()
        losses: dict[Receiver, list[Loss]] = {}
        for out, deadline in tuple(self._suspects.items()):
            if deadline <= now:
                self._condemned.append((out, Fate("link", hint=out.trouble)))
        while self._condemned:
            out, fate = self._condemned.popleft()
            self._suspects.pop(out, None)
            if out.fate is None:
                self._end(out, fate, losses)
            elif out.fate.kind == "link":
                # Closed first, explained later: the next caller is told the truth.
                if fate.restarts:
                    self._begin_anew(out, fate, losses)
                else:
                    out.fate = fate
        for receiver, lost in losses.items():
            receiver.lose(lost)

    def _end(self, out: OutLink, fate: Fate, losses: dict[Receiver, list[Loss]]) -> None:
        opened = out.early is None
        if opened and not out.eof and out.link is not None:
            with contextlib.suppress(ProtocolError):
                self._dispatch(out, out.link.drain())
        self._forget_fd(out)
        if fate.restarts:
            self._begin_anew(out, fate, losses, opened)
            return
        with self._links_lock:
            out.fate = fate
            out.early = None
        self.full.discard(out)
        if out.link is not None:
            out.link.close()
        self._lose(out, fate, losses, opened)

    @staticmethod
    def _lose(out: OutLink, fate: Fate, losses: dict[Receiver, list[Loss]], opened: bool) -> None:
        while out.outstanding:
            _, (receiver, position) = out.outstanding.popitem()
            losses.setdefault(receiver, []).append(Loss(position, fate, sent=opened))

    def _begin_anew(self, out: OutLink, fate: Fate, losses: dict[Receiver, list[Loss]], opened: bool = True) -> None:
        """A process takes the place of the rank: what was sent is lost, the next call opens the link again."""
        link = out.link
        with self._links_lock:
            # First: who sends notes the call in `outstanding`, and looks at `early` after that. A call that is sent at
            # this very moment may be lost below and run all the same; its caller is told that it may have.
            out.early = Early()
            out.asleep, out.stopped, out.writing, out.eof = True, False, False, False
            out.link = out.handshake = out.fate = None
            out.server, out.before = NOBODY, fate
        if link is not None:
            link.close()
        self._lose(out, fate, losses, opened)
        self._watch(out)

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether a call of this process waits for an answer of a rank. Any thread."""
        return any(out.outstanding for key, out in tuple(self._links.items()) if key[:2] == (mesh_id, rank))

    def forget(self, mesh_id: str) -> None:
        """Drop the links to a mesh that is stopped; their calls have failed before. Any thread."""
        with self._links_lock:
            for key in [key for key in self._links if key[0] == mesh_id]:
                self.full.discard(self._links.pop(key))

    def close(self) -> None:
        """Close every link at the end of the process's part in the program."""
        self.closed = True
        for out in list(self._links.values()):
            if out.link is not None:
                out.link.close()
        self._links.clear()
        self._by_fd.clear()
        self._close_poll()

    def abandon(self) -> None:
        """Close the descriptors in a forked child, where every lock may be held by a thread that is not there."""
        for out in list(self._links.values()):
            if out.link is not None:
                out.link.sock.close()
        self._close_poll()


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


def _not_claimed(_frame: Frame) -> Frame:
    raise ProtocolError("an answer in shared memory, which this process does not have")


class Written:
    """Finished when these links have written what they had.

    Attributes:
        since: When the wait began, monotonic ns.
    """

    def __init__(self, outs: list[OutLink]) -> None:
        self._outs = outs
        self.since = time.monotonic_ns()

    @property
    def finished(self) -> bool:
        return not self.slow

    @property
    def slow(self) -> list[OutLink]:
        """The links that have not."""
        return [out for out in self._outs if out.waiting_bytes() and out.fate is None]

"""The callers of one actor: their links, the messages from them, and the answers that they have not read yet.

Rules:

* What one caller sent stays in order.
* CALLs that arrive before INIT wait for it; from INIT on everything keeps its order.
* What comes on an urgent link is served before what waits from others; between two messages these links are read.
* A caller that does not read its answers is not read from, until it does; the others are served meanwhile. Calls that
  were read before are set aside where more than `_UNREAD_MAX` waits to be written to it.
* An answer that the socket did not take whole is copied before the next message runs: user code may change its arrays.
  Where there is no memory for a copy, the actor waits until its caller has taken the answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable

from meshrt.errors import ProtocolError
from meshrt.transport.link import Link
from meshrt.transport.process import current_runtime
from meshrt.transport.waiting import epoll_to_wake
from meshrt.wire.frames import Buffer, Frame, pack_header
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CALL, CANCEL, ERROR, INIT, NO_ERROR, STOP, STORED

__all__ = ["Callers", "Message"]

Message = tuple[Link, Frame]
"""A message and where its answer goes."""

_log = logging.getLogger("meshrt")

_EVENTS = 64
#: Urgent calls that are read ahead.
_URGENT_MAX = 16
#: Bytes of answers that one caller has not read, from which on its messages are not served.
_UNREAD_MAX = 4 << 20
#: Seconds without a read, at the end of an actor, after which its callers are not waited for.
_UNREAD_SECONDS = 1.0
#: Bytes of one caller that are searched for messages that were not read yet, to count them.
_PEEK = 256 << 10


class Callers:
    """Belongs to the thread of the actor; other threads may call `add` and `wake`, and the rest after its end."""

    def __init__(self) -> None:
        #: What is to be served next.
        self.queue: deque[Message] = deque()
        self._early: deque[Message] = deque()
        #: Whether an INIT has come: messages after it keep their place in the queue.
        self._begun = False
        self._links: dict[int, Link] = {}
        #: Those that have not read their answers.
        self.slow: set[Link] = set()
        #: Called with the link and the number of a call that is not wanted any more, and has begun or was not sent.
        self.on_cancel: Callable[[Identity, int], None] = lambda _caller, _call_id: None
        #: Calls that were cancelled on another link, and not yet on their own, or the other way round.
        self.cancelled: set[tuple[Identity, int]] = set()
        #: What is served when its caller has read.
        self._aside: dict[Link, list[Message]] = {}
        self._arrivals: deque[tuple[list[Link], list[Message]]] = deque()
        self._epoll, self._wake_fd = epoll_to_wake()
        #: Waits for the urgent links alone; None: there is none. In `_epoll`, too.
        self.urgent: select.epoll | None = None
        self._lock = threading.Lock()
        self._closed = False

    # -- any thread

    def add(self, links: list[Link], messages: list[Message]) -> None:
        """Serve these callers too, beginning with what has been read from them."""
        self._arrivals.append((links, messages))
        self.wake()

    def wake(self) -> None:
        """Let `collect` return."""
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._wake_fd, 1)

    def waiting(self, *, unread: bool) -> tuple[int, bool]:
        """Return how many messages have come and wait to be served, and whether there may be more of them.

        Args:
            unread: Count in the sockets as well: the actor's thread is known not to read them meanwhile.
        """
        count, more = len(self.queue) + len(self._early) + sum(map(len, tuple(self._aside.values()))), False
        count += sum(len(messages) for _, messages in tuple(self._arrivals))
        for link in tuple(self._links.values()) if unread else ():
            found = link.unread(_PEEK)
            count, more = count + (found or 0), more or found is None
        return count, more

    def has_unseen(self) -> bool:
        """Whether something has come that `collect` has not looked at."""
        try:
            return bool(self._arrivals or self._epoll.poll(0, 1))
        except (OSError, ValueError):  # closed meanwhile
            return False

    # -- collecting

    def fileno(self) -> int:
        """Return a descriptor that is readable when `collect` has something to do."""
        return self._epoll.fileno()

    def collect(self, timeout: float | None) -> bool:
        """Take what has come into the queue; returns whether there was anything."""
        events = self._epoll.poll(timeout, _EVENTS)
        for fd, event in events:
            link = self._links.get(fd)
            if link is None:
                if self.urgent is not None and fd == self.urgent.fileno():
                    self.collect_urgent()
                elif fd == self._wake_fd:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(fd)
                    self._take_arrivals()
            elif event & select.EPOLLOUT:
                self._flush(link)
            else:
                self._read(link)
        return bool(events)

    def collect_urgent(self) -> None:
        """Take what has come on urgent links, if there are any. Never waits."""
        if self.urgent is None or (len(self.queue) >= _URGENT_MAX and self.queue[_URGENT_MAX - 1][0].urgent):
            return  # what is not read makes its callers wait
        for fd, event in self.urgent.poll(0, _EVENTS):
            link = self._links[fd]
            if event & select.EPOLLOUT:
                self._flush(link)
            else:
                self._read(link)

    def _epoll_of(self, link: Link) -> select.epoll:
        if not link.urgent:
            return self._epoll
        if self.urgent is None:
            self.urgent = select.epoll()
            self._epoll.register(self.urgent.fileno(), select.EPOLLIN)
        return self.urgent

    def _take_arrivals(self) -> None:
        while self._arrivals:
            links, messages = self._arrivals.popleft()
            for link in links:
                self._links[link.fileno()] = link
                if link.backlog:
                    self.slow.add(link)
                try:
                    self._epoll_of(link).register(link.fileno(), select.EPOLLOUT if link.backlog else select.EPOLLIN)
                except OSError as error:
                    _log.error("a caller cannot be served: %s", error.strerror)
                    self.drop(link)
            self._enqueue(messages)

    def _read(self, link: Link) -> None:
        try:
            frames = link.read()
        except (ProtocolError, MemoryError):  # not even a few bytes can be read: only this caller is lost
            frames = None
        if frames is None:
            self.drop(link)
        else:
            self._enqueue((link, frame) for frame in frames)

    def _enqueue(self, messages: Iterable[Message]) -> None:
        for message in messages:
            kind = message[1].kind
            if kind & STORED:
                try:
                    message = message[0], current_runtime().store.claim(message[1])
                except ProtocolError:
                    self.drop(message[0])
                    continue
                kind = message[1].kind
            if kind == CALL and not self._begun:
                self._early.append(message)
                continue
            if kind == INIT:
                self._begun = True
            elif kind in (STOP, CANCEL) and not (isinstance(message[1].header, list) and message[1].header):
                self.drop(message[0])
                continue
            elif kind == CANCEL:
                self._cancel(message[0], message[1].header[0])
                continue
            if message[0].urgent and kind == CALL:
                self.queue.insert(self._urgent_place(), message)
            else:
                self.queue.append(message)

    def _urgent_place(self) -> int:
        """Return the place of an urgent call in the queue: behind the INIT, and the urgent calls that came before."""
        place = 0
        for index, (link, frame) in enumerate(self.queue):
            if frame.kind == INIT or (link.urgent and index == place):
                place = index + 1
        return place

    def _cancel(self, link: Link, call_id: int) -> None:
        """A call is not wanted any more: if it has not begun, it is not served."""
        if link.client.pid:
            self.note_cancelled(link.client, call_id)
        for waiting in (self.queue, self._early, self._aside.get(link, [])):
            for index, (its_link, frame) in enumerate(waiting):
                if its_link is link and frame.kind == CALL and frame.header[0] == call_id:
                    del waiting[index]
                    self.withdrawn(link, call_id)
                    return
        if link.client.pid:
            self.on_cancel(link.client, call_id)

    def note_cancelled(self, caller: Identity, call_id: int) -> None:
        """A cancellation has come: each comes twice, on two links, in any order. Any thread."""
        with self._lock:
            self.cancelled ^= {(caller, call_id)}

    def withdrawn(self, link: Link, call_id: int) -> None:
        """Answer a call that does not run, as its caller has cancelled it."""
        self.answer(link, [pack_header(ERROR, [call_id, NO_ERROR, [], "withdrawn"])])

    def is_cancelled(self, link: Link, frame: Frame) -> bool:
        """Whether a message is a call that was cancelled; it is answered then."""
        return frame.kind == CALL and self.is_noted(link, frame.header[0])

    def is_noted(self, link: Link, call_id: int) -> bool:
        """Whether a call of this number was cancelled; it is answered then."""
        if (link.client, call_id) not in self.cancelled:
            return False
        self.withdrawn(link, call_id)
        return True

    def set_aside(self) -> bool:
        """Set aside the next messages of callers that do not read. Returns whether there are no others."""
        while self.queue:
            link, frame = self.queue[0]
            if link not in self._aside and (link.backlog_bytes <= _UNREAD_MAX or frame.kind != CALL):
                return False
            self._aside.setdefault(link, []).append(self.queue.popleft())
        return True

    def _take_back(self, link: Link) -> None:
        # It precedes all that the caller has sent since.
        self.queue.extendleft(reversed(self._aside.pop(link, ())))

    def take_all_back(self) -> None:
        """Serve the messages that were set aside next, whether or not their callers read."""
        for link in tuple(self._aside):
            self._take_back(link)

    def init_done(self) -> None:
        """Serve the messages that came before INIT next."""
        early = sorted(self._early, key=lambda message: not message[0].urgent)  # what is equally urgent keeps its order
        self.queue.extendleft(reversed(early))
        self._early.clear()

    def drop(self, link: Link) -> None:
        """Close a link. Messages that the caller sent before are still served: a broadcast is not waited for."""
        # Its data may be found to be invalid after it was closed, when another link has its number.
        if self._links.get(link.fileno()) is link:
            del self._links[link.fileno()]
            with contextlib.suppress(OSError):
                self._epoll_of(link).unregister(link.fileno())
        self.slow.discard(link)
        self._take_back(link)
        with self._lock:
            self.cancelled = {call for call in self.cancelled if call[0] != link.client}
        link.close()

    # -- answering

    def answer(self, link: Link, parts: list[Buffer]) -> None:
        """Send an answer; what the socket does not take is kept."""
        if not link.send(parts) and not link.closed:
            self.slow.add(link)
            self._epoll_of(link).modify(link.fileno(), select.EPOLLOUT)

    def answer_late(self, link: Link, parts: list[Buffer]) -> None:
        """As `answer`, from any thread, with buffers that no code changes."""
        with self._lock:
            if self._closed:
                link.send(parts)  # the actor was stopped meanwhile; its callers are still connected
            else:
                self.answer(link, parts)

    def _flush(self, link: Link) -> None:
        with self._lock:  # another thread may answer late
            flushed = link.flush()
            if flushed:
                self.slow.discard(link)
                self._epoll_of(link).modify(link.fileno(), select.EPOLLIN)
        if flushed:
            self._take_back(link)

    def keep_backlogs(self) -> None:
        """User code comes next: copy what has not been written."""
        for link in tuple(self.slow):
            while not link.keep_backlog():
                poll = select.poll()
                poll.register(link.fileno(), select.POLLOUT)
                poll.poll()
                self._flush(link)

    def flush_all(self) -> None:
        """Write what is left, until none of the callers has read anything for `_UNREAD_SECONDS`."""
        poll = select.poll()
        slow = {link.fileno(): link for link in self.slow}
        for fd in slow:
            poll.register(fd, select.POLLOUT)
        while slow and (ready := poll.poll(_UNREAD_SECONDS * 1000)):
            for fd, _ in ready:
                if slow[fd].flush():
                    poll.unregister(fd)
                    self.slow.discard(slow.pop(fd))

    # -- the end; the actor's thread serves no more

    def hand_over(self) -> tuple[list[Link], list[Message]]:
        """Return the open links and the messages that were not served; close the rest."""
        self._take_arrivals()
        self.take_all_back()
        self.keep_backlogs()
        links = list(self._links.values())
        self._links.clear()
        self.close_poll()
        return links, [*self._early, *self.queue]

    def close(self) -> None:
        """Close everything."""
        self._take_arrivals()
        for link in self._links.values():
            link.close()
        self.close_poll()

    def close_poll(self) -> None:
        """Give back the descriptors; what `add` was given is left as it is."""
        with self._lock:
            self._closed = True
            if self.urgent is not None:
                self.urgent.close()
            self._epoll.close()
            os.close(self._wake_fd)

    def abandon(self) -> None:
        """Close the links in a forked child, where the locks may be held by a thread that does not exist."""
        for link in tuple(self._links.values()):
            link.sock.close()

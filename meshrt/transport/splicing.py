"""Passes bytes between pairs of connections, both ways, on a thread of its own.

A pair has a buffer for each direction. It is read only while that is empty: a receiver that does not read slows its
sender, by the kernel's own means, and nobody else; the memory of a pair is bounded.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import threading

from meshrt.transport.threads import RuntimeThread

__all__ = ["Splicer"]

#: Bytes of one buffer.
_BUFFER = 1 << 17


class Splicer:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: list[tuple[socket.socket, socket.socket]] = []
        self._closing = False
        self._thread: threading.Thread | None = None
        #: Of the thread alone: by descriptor, the pair of a socket, and what is waited for.
        self._pairs: dict[int, _Pair] = {}
        self._events: dict[int, int] = {}

    def add(self, one: socket.socket, other: socket.socket) -> None:
        """Connect two sockets with each other; both are owned."""
        with self._lock:
            if self._closing:
                one.close()
                other.close()
                return
            self._new.append((one, other))
            if self._thread is None:
                self._epoll = select.epoll()
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._epoll.register(self._wake, select.EPOLLIN)
                self._thread = RuntimeThread(target=self._run, name="meshrt-relay", daemon=True)
                self._thread.start()
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close all of them, and end the thread; twice is fine."""
        with self._lock:
            if self._thread is not None and not self._closing:
                os.eventfd_write(self._wake, 1)
            self._closing = True

    def abandon(self) -> None:
        """Close the descriptors in a forked child, which has no such thread."""
        for sock in [*itertools.chain(*self._new), *(sock for pair in self._pairs.values() for sock in pair.sockets)]:
            sock.close()
        if self._thread is not None:
            self._epoll.close()

    # -- the thread

    def _run(self) -> None:
        while not self._closing:
            for descriptor, _ in self._epoll.poll():
                if descriptor == self._wake:
                    self._take_new()
                elif (pair := self._pairs.get(descriptor)) is not None:
                    self._serve(pair)
        with self._lock:
            for one, other in self._new:
                one.close()
                other.close()
        for pair in set(self._pairs.values()):
            pair.close()
        self._epoll.close()
        os.close(self._wake)

    def _take_new(self) -> None:
        os.eventfd_read(self._wake)
        with self._lock:
            new, self._new = self._new, []
        for one, other in new:
            pair = _Pair(one, other)
            for sock in (one, other):
                self._pairs[sock.fileno()] = pair
            self._serve(pair)

    def _serve(self, pair: _Pair) -> None:
        """Move what can be moved now, and wait for what may move next."""
        try:
            for flow in pair.flows:
                flow.move()
        except OSError:  # one side is gone, and the other one has to be told
            self._remove(pair)
            return
        if all(flow.ended for flow in pair.flows):
            self._remove(pair)
            return
        for sock in pair.sockets:
            self._wait_for(sock.fileno(), pair.events(sock))

    def _wait_for(self, descriptor: int, events: int) -> None:
        before = self._events.get(descriptor, 0)
        if events == before:
            return
        if not events:  # the kernel would report an end that is not to be looked at yet, again and again
            self._epoll.unregister(descriptor)
        elif before:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        self._events[descriptor] = events

    def _remove(self, pair: _Pair) -> None:
        for sock in pair.sockets:
            self._wait_for(sock.fileno(), 0)
            self._events.pop(sock.fileno(), None)
            del self._pairs[sock.fileno()]
        pair.close()


class _Flow:
    """What goes from one socket to another."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        #: The source has ended.
        self.finished = False
        #: ... and the target has been told.
        self.ended = False
        self.left = memoryview(b"")
        self._buffer = memoryview(bytearray(_BUFFER))

    def move(self) -> None:
        """Read and write as far as possible, a few times at most: others wait. Raises OSError: one side is gone."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(8):
                while self.left:
                    self.left = self.left[self.target.send(self.left) :]
                if self.finished:
                    break
                count = self.source.recv_into(self._buffer)
                self.left = self._buffer[:count]
                self.finished = not count
        if self.finished and not self.left and not self.ended:
            self.ended = True
            self.target.shutdown(socket.SHUT_WR)


class _Pair:
    """Two sockets."""

    def __init__(self, one: socket.socket, other: socket.socket) -> None:
        for sock in (one, other):
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # it may be of unix, in tests
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sockets = (one, other)
        self.flows = (_Flow(one, other), _Flow(other, one))

    def events(self, sock: socket.socket) -> int:
        """Return what is waited for at one of them."""
        wanted = 0
        for flow in self.flows:
            if flow.source is sock and not flow.left and not flow.finished:
                wanted |= select.EPOLLIN
            if flow.target is sock and flow.left:
                wanted |= select.EPOLLOUT
        return wanted

    def close(self) -> None:
        """Close both."""
        for sock in self.sockets:
            sock.close()

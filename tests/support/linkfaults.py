"""A relay between the two ends of a link, which can delay, hold back, cut, dribble and reset what passes.

It takes the place of a rank's socket path (`in_front_of`), or of one end of a connected pair (`between`). What it does
to the bytes is switched on and off with context managers; without any it passes everything on at once.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import os
import select
import socket
import termios
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from tests.support.waiting import wait_until

__all__ = ["FaultyRelay", "Way"]

Way = Literal["there", "back"]
"""To the process that listens, or back to the one that has dialled."""

_READ = 1 << 18
#: Bytes that wait here at most; the sender has to wait with the rest, as with any link.
_HELD = 1 << 20
_TICK = 0.002


class _Flow:
    """The bytes of one direction of one connection."""

    def __init__(self, way: Way, source: socket.socket, target: socket.socket, delay: float) -> None:
        self.way = way
        self.source = source
        self.target = target
        self.delay = delay
        #: What has come, and when.
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.held = 0
        #: Bytes that may still pass; None: any number.
        self.left: int | None = None
        self.ended = False
        self.done = False


class _Pair:
    """One connection: the socket of who has dialled, and that of who listens."""

    def __init__(self, number: int, near: socket.socket, far: socket.socket, delay: float) -> None:
        self.number = number
        near.setblocking(False)
        far.setblocking(False)
        self.near = near
        self.far = far
        self.flows = (_Flow("there", near, far, delay), _Flow("back", far, near, delay))

    def close(self) -> None:
        self.near.close()
        self.far.close()


class FaultyRelay:
    """One thread that passes bytes on. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._target = ""
        self._path: Path | None = None
        self._pairs: list[_Pair] = []
        self._lock = threading.RLock()
        self._delays: Iterator[float] = itertools.repeat(0.0)
        self._numbers = itertools.count()
        self._silent: set[Way] = set()
        self._dribbles = False
        self._closing = False
        #: The order in which connections have passed something on, each time another than before: their numbers.
        self.passed: list[int] = []
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="faulty-relay", daemon=True)

    @classmethod
    def in_front_of(cls, path: str) -> Self:
        """Take the place of what listens at ``path``; who dials from now on is connected through here."""
        relay = cls()
        relay._path, relay._target = Path(path), f"{path}~"
        os.rename(path, relay._target)
        relay._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        relay._listener.bind(path)
        relay._listener.listen(64)
        relay._listener.setblocking(False)
        relay._thread.start()
        return relay

    @classmethod
    def between(cls, end: socket.socket) -> tuple[Self, socket.socket]:
        """Take one end of a connected pair; returns the relay and the end to use instead."""
        relay = cls()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        relay._pairs.append(_Pair(0, ours, end, 0.0))
        relay._thread.start()
        return relay, theirs

    # -- what goes wrong

    @contextlib.contextmanager
    def delayed(self, *seconds: float) -> Iterator[None]:
        """Bytes come late: connection by connection by ``seconds``, in turns, those that there are included.

        What still waits at the end of the block comes then.
        """
        delays = itertools.cycle(seconds)
        with self._lock:
            self._delays = delays
            for pair, delay in zip(self._pairs, delays, strict=False):
                for flow in pair.flows:
                    flow.delay = delay
        try:
            yield
        finally:
            with self._lock:
                self._delays = itertools.repeat(0.0)
                for pair in self._pairs:
                    for flow in pair.flows:
                        flow.delay = 0.0

    @contextlib.contextmanager
    def silent(self, *ways: Way) -> Iterator[None]:
        """Nothing is read or passed on (both ways by default); the connections stay open. Then it goes on."""
        self._change(silent=set(ways) or {"there", "back"})
        try:
            yield
        finally:
            self._change(silent=set())

    @contextlib.contextmanager
    def dribbling(self) -> Iterator[None]:
        """Bytes pass one by one: the next when the one before has been read."""
        self._change(dribbles=True)
        try:
            yield
        finally:
            self._change(dribbles=False)

    @contextlib.contextmanager
    def cut_after(self, count: int, way: Way) -> Iterator[None]:
        """Of each connection that there is only ``count`` more bytes pass in one direction, until the block ends."""
        self._limit(count, way)
        try:
            yield
        finally:
            self._limit(None, way)

    def shut_down(self, way: Way) -> None:
        """End one direction of every connection, behind what has passed; the other one stays open."""
        with self._lock:
            for pair in self._pairs:
                for flow in pair.flows:
                    if flow.way == way:
                        flow.done = True
                        with contextlib.suppress(OSError):
                            flow.target.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close every connection with unread bytes in it: both ends get ECONNRESET, as from TCP.

        Call it while `silent`. Each end that has not sent anything since then gets an end of stream.
        """
        with self._lock:
            for pair in self._pairs:
                pair.close()
            self._pairs.clear()

    def wait_for_bytes(self, way: Way) -> None:
        """Wait until bytes have come that are not passed on; to be called while `silent`."""
        wait_until(lambda: self._unread(way) > 0, 20, f"bytes on their way {way}")

    def stuck(self, way: Way) -> bool:
        """Whether bytes have come that may not pass, see `cut_after`."""
        with self._lock:
            flows = [flow for pair in self._pairs for flow in pair.flows if flow.way == way]
            return any(flow.waiting and flow.left == 0 for flow in flows)

    def connections(self) -> int:
        """How many there are."""
        with self._lock:
            return len(self._pairs)

    def _unread(self, way: Way) -> int:
        with self._lock:
            return sum(_unread(flow.source) for pair in self._pairs for flow in pair.flows if flow.way == way)

    # -- the thread

    def _change(self, *, silent: set[Way] | None = None, dribbles: bool | None = None) -> None:
        with self._lock:
            if silent is not None:
                self._silent = silent
            if dribbles is not None:
                self._dribbles = dribbles
        os.eventfd_write(self._wake, 1)

    def _limit(self, count: int | None, way: Way) -> None:
        with self._lock:
            for pair in self._pairs:
                for flow in pair.flows:
                    if flow.way == way:
                        flow.left = count
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while not self._closing:
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            busy = False
            with self._lock:
                if self._listener is not None:
                    poll.register(self._listener, select.POLLIN)
                for pair in self._pairs:
                    for source in (pair.near, pair.far):
                        if any(flow.source is source and self._reads(flow) for flow in pair.flows):
                            poll.register(source, select.POLLIN)
                    busy |= any(flow.waiting for flow in pair.flows)
            ready = {number for number, _ in poll.poll(_TICK * 1000 if busy else None)}
            with self._lock:
                if self._wake in ready:
                    os.eventfd_read(self._wake)
                if self._listener is not None and self._listener.fileno() in ready:
                    self._accept(self._listener)
                for pair in self._pairs:
                    for flow in pair.flows:
                        if flow.source.fileno() in ready and self._reads(flow):
                            self._read(flow)
                        if self._write(flow) and self.passed[-1:] != [pair.number]:
                            self.passed.append(pair.number)
                self._pairs = [pair for pair in self._pairs if not self._over(pair)]

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                far.close()
                return
            self._pairs.append(_Pair(next(self._numbers), near, far, next(self._delays)))

    def _reads(self, flow: _Flow) -> bool:
        return not flow.ended and flow.way not in self._silent and flow.held < _HELD

    @staticmethod
    def _read(flow: _Flow) -> None:
        try:
            data = flow.source.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            flow.waiting.append((time.monotonic(), data))
            flow.held += len(data)
        else:
            flow.ended = True

    def _write(self, flow: _Flow) -> bool:
        """Pass on what is due; returns whether there was something."""
        passed = False
        while flow.waiting and flow.way not in self._silent and not flow.done:
            came, data = flow.waiting[0]
            if came + flow.delay > time.monotonic() or flow.left == 0 or (self._dribbles and _unsent(flow.target)):
                break
            piece = data[:1] if self._dribbles else data[: flow.left]
            try:
                count = flow.target.send(piece)
            except BlockingIOError:
                break
            except OSError:
                flow.waiting.clear()
                flow.done = flow.ended = True
                break
            passed = True
            flow.held -= count
            if flow.left is not None:
                flow.left -= count
            if count < len(data):
                flow.waiting[0] = came, data[count:]
            else:
                flow.waiting.popleft()
        if flow.ended and not flow.waiting and not flow.done:
            flow.done = True
            with contextlib.suppress(OSError):
                flow.target.shutdown(socket.SHUT_WR)
        return passed

    @staticmethod
    def _over(pair: _Pair) -> bool:
        if all(flow.done for flow in pair.flows) and all(flow.ended for flow in pair.flows):
            pair.close()
            return True
        return False

    def close(self) -> None:
        """End the thread and all connections; at ``path`` listens again who did before, if it still does."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(10)
        os.close(self._wake)
        for pair in self._pairs:
            pair.close()
        if self._listener is not None and self._path is not None:
            self._listener.close()
            if self._path.exists():
                os.rename(self._target, self._path)
            else:  # the rank has ended, and its path has gone with it
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _count(sock: socket.socket, request: int) -> int:
    number = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), request, number)
    return number[0]


def _unread(sock: socket.socket) -> int:
    """Bytes that have come to a socket and were not read."""
    return _count(sock, termios.FIONREAD)


def _unsent(sock: socket.socket) -> int:
    """Bytes that were written to a socket and not read at its other end."""
    return _count(sock, termios.TIOCOUTQ)
